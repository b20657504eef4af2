package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// exists: volumes that are left are no NATS.
func (n nats) exists(d *Rules, w *observed.World) bool {
	return w.Exists(d.Names, operatorv1alpha1.NATS)
}

// finished: one that was never opened has nothing in it, either. A part of it may be all there is,
// and nothing of it may answer.
func (n nats) finished(d *Rules, w *observed.World) bool {
	return !n.exists(d, w) || w.Drained(d.Names)
}

// idle tells whether a stream is that of NATS that is drained, and holds nothing.
func idle(d *Rules, w *observed.World, info *jetstream.StreamInfo) bool {
	return w.Drained(d.Names) && w.NATS.Connected && stream.Ours(info.Config) && !stream.Open(info.Config) && info.State.Msgs == 0
}

func (nats) pending(w *observed.World) int64 {
	if w.NATS.Stream == nil {
		return 0
	}
	return int64(stream.Waiting(w.NATS.Stream, w.NATS.Consumers)) //nolint:gosec // it does not reach 2^63
}

// leave closes the stream, and waits until it is empty.
func (n nats) leave(t *reconciliation) {
	w := t.w
	info := w.NATS.Stream
	if t.forced() {
		t.step(operatorv1alpha1.ReasonRemoving, "NATS is being removed by force.")
		n.removed(t.Rules, w, t.o, true)
		return
	}
	if silent(w) {
		t.step(operatorv1alpha1.ReasonDraining, "NATS does not answer now.%s", whyAway(w))
		t.o.look(silence - w.NATS.Away)
		return
	}
	hinders := func(reason, format string, args ...any) {
		if reason != operatorv1alpha1.ReasonDangling && reason != operatorv1alpha1.ReasonDeadLetters {
			reason = operatorv1alpha1.ReasonDraining
		}
		t.o.AtLeast(operatorv1alpha1.StateWarning)
		t.step(reason, format+" To remove it nevertheless: kubectl -n %s annotate --overwrite eventings.operator.kyma-project.io %s %s=%s",
			append(args, w.Eventing.Namespace, w.Eventing.Name, operatorv1alpha1.ForceTeardownAnnotation, w.ForceValue(t.leaving.is, t.target))...)
	}
	if info != nil && w.NATS.Connected && !stream.Open(info.Config) && info.State.Msgs > 0 && !w.NATS.Dangling {
		if at, ok := stream.ClosedAt(info.Config); ok && w.Now.Sub(at) <= drainLimit {
			t.step(operatorv1alpha1.ReasonDraining, "%s", holds(w))
			t.o.look(askAgain)
			return
		}
	}
	if t.emptied(w, t.o, hinders) {
		reason := operatorv1alpha1.ReasonDraining
		if info != nil && stream.Open(info.Config) {
			reason = operatorv1alpha1.ReasonClosing
		}
		t.step(reason, "The stream is closed, and is watched until it stays empty.")
	}
}

func (n nats) remove(t *reconciliation) {
	t.step(operatorv1alpha1.ReasonRemoving, "NATS is drained, and is being removed.")
	n.removed(t.Rules, t.w, t.o, t.forced())
}

// drain finds out first what would keep NATS from being emptied: until then, events are taken.
func (n nats) drain(d *Rules, w *observed.World, o *Decision, hinders blocked) bool {
	backends, err := w.Backends(d.Names)
	switch {
	case n.finished(d, w):
		return true
	case silent(w):
		o.look(silence - w.NATS.Away)
		o.AtLeast(operatorv1alpha1.StateDeleting)
		o.Condition(operatorv1alpha1.ConditionDeleted, false, operatorv1alpha1.ReasonDeleting, "NATS does not answer now.%s", whyAway(w))
		return false
	case unclear(w, o, hinders):
		return false
	case !d.stopped(w, o, d.Names.Publisher(), observed.Publisher):
		// Its pods answer what they have taken. What comes after that is refused by the Service.
	case w.Available() && err == nil && len(backends.Accept) > 0:
		backends.Accept = nil
		o.do(d.backends(w, backends, "accept no more events"))
	case !d.emptied(w, o, hinders):
		return false
	}
	o.AtLeast(operatorv1alpha1.StateDeleting)
	o.Condition(operatorv1alpha1.ConditionDeleted, false, operatorv1alpha1.ReasonDeleting, "The stream is closed, and is watched until it stays empty.")
	return false
}

// unclear tells whether it cannot be known now what NATS holds, or for whom. Then hinders was told
// why.
func unclear(w *observed.World, o *Decision, hinders blocked) bool {
	switch {
	case !w.NATS.Connected:
		hinders(operatorv1alpha1.ReasonNATSUnreachable, "NATS may hold events, and does not answer.%s", whyAway(w))
	case len(w.NATS.ForeignStreams()) > 0:
		o.look(askAgain) // streams are not watched
		hinders(operatorv1alpha1.ReasonForeignStreams, "NATS has streams of others: %s.", strings.Join(w.NATS.ForeignStreams(), ", "))
	case w.NATS.Stream != nil && len(stream.Foreign(w.NATS.Consumers)) > 0:
		o.look(askAgain)
		hinders(operatorv1alpha1.ReasonForeignStreams, "The stream has consumers of others: %s.", strings.Join(stream.Foreign(w.NATS.Consumers), ", "))
	default:
		return false
	}
	return true
}

// holds says what the stream holds, and for whom.
func holds(w *observed.World) string {
	return strings.TrimSpace(stream.Holds(w.NATS.Stream, w.NATS.Consumers) + " " + absent(w, ""))
}

// absent says for which Subscriptions events wait that do not exist, of one subject if that is not
// empty; "" if there is none.
func absent(w *observed.World, subject string) string {
	missing := w.Missing(subject)
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("These do not exist: %s. A backup may restore them, so what waits for them is kept for %s after the controller has found that.", observed.Names(missing), duration.HumanDuration(backend.KeepConsumers))
}

// emptied closes the stream, waits until it stays empty, and marks NATS as drained. It is false if
// something keeps it from that: then hinders was told a reason and a message.
func (d *Rules) emptied(w *observed.World, o *Decision, hinders blocked) bool {
	info := w.NATS.Stream
	switch {
	case unclear(w, o, hinders):
		return false
	case info != nil && stream.Open(info.Config):
		o.do(UpdateStream{info, stream.Closed(info.Config, w.Now), "close"})
	case info != nil && info.State.Msgs > 0:
		o.look(askAgain)
		if w.NATS.Dangling {
			hinders(operatorv1alpha1.ReasonDangling, "The stream holds %d events, with sequences from %d to %d, that no Subscription waits for. Nobody will get them.",
				info.State.Msgs, info.State.FirstSeq, info.State.LastSeq)
			return false
		}
		hinders(operatorv1alpha1.ReasonStreamNotEmpty, "%s", holds(w))
		return false
	case info != nil && !w.NATS.Quiet && len(w.NATS.Behind) > 0 && w.NATS.BehindFor >= silence:
		// What one server says is not known to be all: a leader that was cut off answers with an
		// old state.
		o.look(askAgain)
		hinders(operatorv1alpha1.ReasonNATSUnreachable, "NATS may hold events. These servers are not up to date: %s.%s", strings.Join(w.NATS.Behind, ", "), whyAway(w))
		return false
	case info != nil && !w.NATS.Quiet && info.Config.Replicas <= 1:
		o.look(drainedAgain)
	case info != nil && !w.NATS.Quiet:
		o.look(d.DrainWatch)
	case w.NATS.DeadLetters != nil && w.NATS.DeadLetters.State.Msgs > 0:
		o.look(askAgain)
		hinders(operatorv1alpha1.ReasonDeadLetters, "%s Deliver them again, or delete them: kubectl eventing dead-letters redeliver --all-namespaces --all, kubectl eventing dead-letters delete --all-namespaces --all.",
			stream.Kept(w.NATS.DeadLetters))
		return false
	default:
		o.do(markDrained(d, w)...)
	}
	return true
}

// markDrained writes that no event is left in NATS: to the volumes first, which may outlive it.
func markDrained(d *Rules, w *observed.World) (marks []Action) {
	config := w.Object("ConfigMap", d.Names.NATSConfig())
	if config == nil {
		// Somebody deleted it. Without it, nothing could say that NATS is drained.
		return []Action{Create{evidence(d, w)}}
	}
	for i := range w.Claims {
		if c := &w.Claims[i]; c.Annotations[backend.EpochAnnotation] != c.Annotations[observed.DrainedAnnotation] {
			marks = append(marks, Patch{observed.Claim(c), annotations(map[string]any{observed.DrainedAnnotation: c.Annotations[backend.EpochAnnotation]}), "write that it is drained"})
		}
	}
	epoch := config.GetAnnotations()[backend.EpochAnnotation]
	return append(marks, Patch{config, map[string]any{"data": map[string]any{observed.DrainedKey: epoch}}, "write that NATS is drained"})
}

// silent tells whether NATS has been away for a short time only.
func silent(w *observed.World) bool { return !w.NATS.Connected && w.NATS.Away < silence }

// whyAway is why NATS does not answer, as a sentence with a space before it; "" if nothing is
// known.
func whyAway(w *observed.World) string {
	if problem := (nats{}).problem(nil, w); problem != "" {
		return " " + strings.TrimSuffix(problem, ".") + "." // some end as the errors do that they quote
	}
	return ""
}

// evidence is the ConfigMap <prefix>-nats-config without a configuration: it says only that the
// stream was opened.
func evidence(d *Rules, w *observed.World) *unstructured.Unstructured {
	u := d.configMap(w, d.Names.NATSConfig(), backend.PlaneNATS, "nats", map[string]any{observed.OpenedKey: w.NewEpoch})
	u.SetAnnotations(map[string]string{backend.EpochAnnotation: w.NewEpoch})
	return u
}

// removed: what has evidence in it goes last.
func (nats) removed(d *Rules, w *observed.World, o *Decision, force bool) bool {
	if sts := w.Object("StatefulSet", d.Names.NATS()); sts != nil {
		if info := w.NATS.Stream; sts.GetDeletionTimestamp() == nil && info != nil && idle(d, w, info) {
			// A server that ends stores the state of each consumer first: 15 seconds with 1,000.
			o.do(DeleteStream{info})
		}
		o.delete(sts)
		return false
	}
	if len(w.PodsOf(observed.Servers)) > 0 {
		for _, p := range w.Orphans() { // nothing else ends them
			o.do(Remove{observed.Pod(&p)})
		}
		return false // their end is watched
	}
	retention := operatorv1alpha1.RetentionRetain
	if w.Eventing.Spec.Backend != nil {
		retention = w.Eventing.Spec.Backend.Config.NATSStorage.Retention
	}
	if retention == operatorv1alpha1.RetentionDelete && len(w.Claims) > 0 {
		if undrained := w.Undrained(); len(undrained) == 0 || force {
			for i := range w.Claims {
				if w.Claims[i].DeletionTimestamp == nil {
					o.do(Remove{observed.Claim(&w.Claims[i])})
				}
			}
			return false
		}
	}
	last := []observed.Key{{Kind: "Secret", Name: d.Names.NATSTLS()}, {Kind: "ConfigMap", Name: d.Names.NATSConfig()}}
	left := false
	for _, key := range w.Keys() {
		if u := w.Ours[key]; u.GetLabels()[backend.PlaneLabel] == string(backend.PlaneNATS) && !slices.Contains(last, key) && !observed.Lasting(d.Names, key) {
			o.delete(u)
			left = true
		}
	}
	return !o.inTurn(w, last, left)
}
