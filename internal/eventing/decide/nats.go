package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/identity"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/rollout"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/values"
)

// nats is NATS as a backend: servers of our own, which store events in one stream. How it is
// drained and removed is in drain.go.
type nats struct{ plain }

func (nats) unfit(d *Rules, w *observed.World) string {
	claims := stream.Unfit(w.Eventing.Spec.Backend.Config, w.Claims)
	if len(claims) == 0 {
		return ""
	}
	return fmt.Sprintf("Volumes are left of another number of servers, or too small. Delete them if you need no event in them: kubectl -n %s delete pvc %s", d.Namespace, strings.Join(claims, " "))
}

func (n nats) planned(names backend.Names, config operatorv1alpha1.BackendConfig) []observed.Key {
	planned := []observed.Key{{Kind: "StatefulSet", Name: names.NATS()}, {Kind: "Service", Name: names.NATS()}, {Kind: "Service", Name: names.NATSHeadless()}, natsConfigKey(names), {Kind: "Secret", Name: names.NATSTLS()}}
	if config.NATSStreamReplicas > 1 {
		planned = append(planned, observed.Key{Kind: "PodDisruptionBudget", Name: names.NATS()})
	}
	return planned
}

func (nats) secrets(n backend.Names) []observed.Key {
	return []observed.Key{{Kind: "Secret", Name: n.NATSUsers()}, {Kind: "Secret", Name: n.NATSCA()}, {Kind: "Secret", Name: n.NATSTLS()}}
}

// credentials: those that outlive NATS are created with each backend.
func (n nats) credentials(t *reconciliation) (actions []Action) {
	if len(t.keys) < len(identity.Users) {
		actions = append(actions, Credentials{t.Names.NATSUsers()})
	}
	for _, name := range t.Outdated(t.w, t.w.Now) {
		if observed.Lasting(t.Names, observed.Key{Kind: "Secret", Name: name}) || t.target == operatorv1alpha1.NATS || t.w.Has("StatefulSet") {
			actions = append(actions, Credentials{name})
		}
	}
	return actions
}

// again: from now on, events may come in again.
func (n nats) again(t *reconciliation) Action {
	config := t.w.Object("ConfigMap", t.Names.NATSConfig())
	if observed.Data(config)[observed.DrainedKey] == "" {
		return nil
	}
	return Patch{config, map[string]any{"data": map[string]any{observed.DrainedKey: nil}}, "remove the mark that NATS is drained"}
}

func (nats) values(d *Rules, spec *operatorv1alpha1.EventingSpec, keys map[string]string, authority []byte) (map[string]any, error) {
	return values.NATS(spec.Backend.Config, d.NATSImage, keys, authority)
}

// natsConfigKey is the first object of NATS that is created, and the last one that is deleted.
func natsConfigKey(n backend.Names) observed.Key {
	return observed.Key{Kind: "ConfigMap", Name: n.NATSConfig()}
}

// prepared makes the stream as it is wanted: closed if it is new.
func (n nats) prepared(t *reconciliation) bool {
	w, o := t.w, t.o
	info := w.NATS.Stream
	switch {
	case !w.NATS.Connected, info == nil && !rollout.Done(rollout.As[appsv1.StatefulSet](w.Object("StatefulSet", t.Names.NATS()))):
		limit := t.BackendTimeout
		if observed.Data(w.Object("ConfigMap", t.Names.NATSConfig()))[observed.OpenedKey] != "" {
			limit = downLimit
		}
		t.down(limit)
		return false
	case info == nil && (t.backends.Serving.Has(operatorv1alpha1.NATS) || t.backends.Accept.Has(operatorv1alpha1.NATS)):
		// A stream that is gone had consumers, and the new one has none. A report about the old one
		// must not open it.
		o.do(t.Rules.backends(w, t.fresh(), "begin an epoch"))
	case info == nil:
		o.do(CreateStream{wantedStream(w, t.backends.Epoch, false)})
	case stream.Epoch(info.Config) == "":
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonForeignObject,
			"Stream %s in NATS was not created by this operator, and is left as it is. Delete the volumes of NATS if you need no event in them.", info.Config.Name)
		return false
	case stream.Differs(info.Config, streamConfig(w, t.backends.Epoch)):
		o.do(UpdateStream{info, streamConfig(w, t.backends.Epoch), "update"})
	default:
		return true
	}
	o.AtLeast(operatorv1alpha1.StateProcessing)
	if !w.Available() {
		t.unavailable("The stream of NATS is being created.")
	}
	return false
}

func (nats) takes(_ *Rules, w *observed.World) bool { return w.Available() }

func (nats) away(d *Rules, w *observed.World, epoch string) bool {
	return !w.NATS.Connected && observed.Data(w.Object("ConfigMap", d.Names.NATSConfig()))[observed.OpenedKey] == epoch
}

// marks: the volumes have them, and the ConfigMap, which is all there is with storage in memory.
func (nats) marks(t *reconciliation) (marks []Action) {
	for i := range t.w.Claims {
		c := &t.w.Claims[i]
		if c.Annotations[backend.EpochAnnotation] != t.backends.Epoch || c.Annotations[observed.DrainedAnnotation] != "" {
			marks = append(marks, Patch{observed.Claim(c), annotations(map[string]any{backend.EpochAnnotation: t.backends.Epoch, observed.DrainedAnnotation: nil}), "write the epoch"})
		}
	}
	if config := t.w.Object("ConfigMap", t.Names.NATSConfig()); observed.Data(config)[observed.OpenedKey] != t.backends.Epoch {
		marks = append(marks, Patch{config, map[string]any{"data": map[string]any{observed.OpenedKey: t.backends.Epoch}}, "write that the stream was opened"})
	}
	return marks
}

func (nats) open(t *reconciliation) Action {
	return UpdateStream{t.w.NATS.Stream, wantedStream(t.w, t.backends.Epoch, true), "open"}
}

// report says how much room there is for events, and keeps the certificate new.
func (nats) report(t *reconciliation) {
	w, o := t.w, t.o
	t.size(w, o)
	reason, message := room(t.Rules, w, o)
	if w.NATS.StaleCertificate {
		o.do(Reload{})
		o.look(askAgain)
	}
	if at, err := t.Renewal(w); err == nil {
		o.look(at.Sub(w.Now))
	}
	o.Condition(operatorv1alpha1.ConditionBackendAvailable, reason == operatorv1alpha1.ReasonNATSAvailable, reason, "%s", message)
}

func (n nats) address(t *reconciliation, b *backend.Backends) {
	b.NATS = nil
	if t.target == operatorv1alpha1.NATS || !n.finished(t.Rules, t.w) {
		b.NATS = &backend.NATSAddress{URL: t.NATSURL, Stream: backend.Stream, CA: t.Names.NATSCA()}
	}
}

func (nats) problem(_ *Rules, w *observed.World) string {
	if problem := rollout.Problem(w.PodsOf(observed.Servers)); problem != "" {
		return problem
	}
	return w.NATS.Problem
}

func (nats) degraded(d *Rules, w *observed.World) string {
	sts := rollout.As[appsv1.StatefulSet](w.Object("StatefulSet", d.Names.NATS()))
	if sts == nil || sts.Spec.Replicas == nil {
		return ""
	}
	for i := range w.Claims {
		if c := &w.Claims[i]; c.DeletionTimestamp != nil {
			return fmt.Sprintf("PersistentVolumeClaim %s is being deleted: when the pod of its server ends, its volume is deleted, with the events in it. A switch of the backend delivers them before. To keep the volume: "+
				`kubectl patch persistentvolumes %s --type=merge -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, c.Name, c.Spec.VolumeName)
		}
	}
	return shortOf(w, "NATS", "servers", observed.Servers, sts.Status.ReadyReplicas, *sts.Spec.Replicas, "")
}

func (n nats) breaks(d *Rules, w *observed.World, a Action) string {
	const holds = "NATS may hold events"
	switch a := a.(type) {
	case UpdateStream:
		if stream.Open(a.Observed.Config) && !stream.Open(a.Config) { // that of dead letters is neither
			return d.published(w, operatorv1alpha1.NATS)
		}
	case DeleteStream:
		if a.Observed.Config.Name != backend.Stream || !idle(d, w, a.Observed) {
			return holds
		}
	case Remove:
		kind, forced := a.Observed.GetKind(), d.permitted(w, operatorv1alpha1.NATS)
		if slices.Contains([]string{"StatefulSet", "PersistentVolumeClaim"}, kind) && !forced && !w.Drained(d.Names) && !n.finished(d, w) ||
			kind == "Pod" && (w.Eventing.DeletionTimestamp == nil || !forced && !w.Drained(d.Names)) {
			return holds
		}
	}
	return ""
}

// room says how full NATS is, if that is a problem, with what holds the space and what to do.
func room(d *Rules, w *observed.World, o *Decision) (reason, message string) {
	info := w.NATS.Stream
	if w.NATS.Volume.NotWritable {
		o.AtLeast(operatorv1alpha1.StateError)
		return operatorv1alpha1.ReasonNotWritable, fmt.Sprintf("NATS refuses events: its volume cannot be written. Repair the volume or its file system; "+
			"then the server starts again by itself. See why: kubectl -n %s logs --prefix --tail=50 --selector=%s=%s,%s=%s",
			d.Namespace, observed.NameLabel, observed.Servers, backend.PodInstanceLabel, d.Names)
	}
	level, subject, message := stream.Tightness(info, w.NATS.Volume, w.NATS.Full)
	reason = operatorv1alpha1.ReasonStorageFull
	switch {
	case level == stream.Enough:
		return operatorv1alpha1.ReasonNATSAvailable, ""
	case subject != "":
		reason = operatorv1alpha1.ReasonTypeFull
	}
	if level == stream.None {
		o.AtLeast(operatorv1alpha1.StateError)
	} else {
		o.AtLeast(operatorv1alpha1.StateWarning)
		reason = operatorv1alpha1.ReasonNATSAvailable
	}
	holders := w.NATS.Holders(subject)
	next := stream.Remedy(holders)
	if next == "" && reason == operatorv1alpha1.ReasonTypeFull {
		next = fmt.Sprintf(`A larger limit: kubectl -n %s patch eventings.operator.kyma-project.io %s --type=merge -p '{"spec":{"backend":{"config":{"natsMaxMsgsPerTopic":%d}}}}'`,
			w.Eventing.Namespace, w.Eventing.Name, 2*info.Config.MaxMsgsPerSubject)
	}
	return reason, strings.TrimSpace(strings.Join(slices.DeleteFunc([]string{message, stream.NameHolders(holders), absent(w, subject), next}, func(s string) bool { return s == "" }), " "))
}

// natsStatus is what the status of the Eventing says of NATS.
func natsStatus(d *Rules, w *observed.World) *operatorv1alpha1.NATSStatus {
	status := stream.Status(w.NATS.Stream, w.NATS.DeadLetters)
	if sts := rollout.As[appsv1.StatefulSet](w.Object("StatefulSet", d.Names.NATS())); sts != nil {
		status.Servers = sts.Status.ReadyReplicas
	}
	return status
}

// wantedStream is the stream that the spec asks for, with no more than its volume holds safely.
func wantedStream(w *observed.World, epoch string, open bool) jetstream.StreamConfig {
	return stream.Wanted(w.Eventing.Spec.Backend.Config, w.Claims, epoch, open)
}

// streamConfig is the stream as the spec wants it, and as open as it is.
func streamConfig(w *observed.World, epoch string) jetstream.StreamConfig {
	return stream.AsOpen(w.NATS.Stream.Config, w.Eventing.Spec.Backend.Config, w.Claims, epoch)
}

// letters makes the stream of dead letters as it is wanted, and says what is in it. It comes last:
// events are taken and delivered without it, too.
func letters(w *observed.World, o *Decision) {
	const kind = operatorv1alpha1.ConditionNoDeadLetters
	info, want := w.NATS.DeadLetters, stream.WantedLetters(w.Eventing.Spec.Backend.Config, w.Claims)
	switch events := w.NATS.Stream; {
	case events == nil && !w.Has("StatefulSet"):
		meta.RemoveStatusCondition(&o.Conditions, kind)
		return
	case events == nil || info == nil && (!stream.Open(events.Config) || w.NATS.Volume.Refuses):
		return // nothing is known of them, or nothing can be stored now
	case info == nil:
		o.do(CreateStream{want})
		return
	case !stream.Ours(info.Config):
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(kind, false, operatorv1alpha1.ReasonForeignObject, "Stream %s in NATS was not created by this operator, so events that sinks refuse wait. Delete it with the client that created it.", want.Name)
		return
	case stream.Differs(info.Config, want) && !w.NATS.Volume.Refuses:
		o.do(UpdateStream{info, want, "update"})
	}
	reason, message, narrow := stream.JudgeDeadLetters(info)
	if narrow {
		o.AtLeast(operatorv1alpha1.StateWarning)
	}
	o.Condition(kind, reason == operatorv1alpha1.ReasonNoDeadLetters, reason, "%s", message)
}

// size says whether the volume holds the stream that the spec asks for. It never changes the state:
// the stream works with less.
func (d *Rules) size(w *observed.World, o *Decision) {
	config := w.Eventing.Spec.Backend.Config
	if problem := stream.Limited(config, stream.SmallestVolume(config, w.Claims)); problem.Message != "" {
		o.Condition(operatorv1alpha1.ConditionStreamSize, false, operatorv1alpha1.ReasonSizeLimited,
			"%s Next: enlarge the volumes, with a StorageClass that allows it: kubectl -n %s patch pvc %s0 -p '{\"spec\":{\"resources\":{\"requests\":{\"storage\":\"%s\"}}}}', and so for each server",
			problem.Message, d.Namespace, d.Names.NATSClaimPrefix(), &problem.Need)
		return
	}
	o.Condition(operatorv1alpha1.ConditionStreamSize, true, operatorv1alpha1.ReasonSizeAsWanted, "")
}
