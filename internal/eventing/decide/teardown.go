package decide

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// The keys of the ConfigMap <prefix>-nats-config in addition to the configuration. Each has an
// epoch.
const (
	// openedKey: the stream of this epoch was opened, or is about to be. Without it, no event was
	// ever taken.
	openedKey = "opened"
	// drainedKey: the stream of this epoch is closed, and stays empty.
	drainedKey = "drained"
)

// drained tells whether it is known that NATS holds no event: no event was ever taken, or a mark
// says that none is left.
func (d *Rules) drained(w *World) bool {
	config := w.Object("ConfigMap", d.Names.NATSConfig())
	if config == nil {
		// It is the last one that is deleted, and the first one that is created after the Secrets.
		return w.Object("StatefulSet", d.Names.NATS()) == nil && len(w.undrained()) == 0
	}
	if epoch := data(config, drainedKey); epoch != "" {
		return epoch == config.GetAnnotations()[backend.EpochAnnotation]
	}
	return data(config, openedKey) == "" && len(w.undrained()) == 0
}

// teardown removes what the operator created, and the finalizer last. It stops where an event could
// be lost.
func (d *Rules) teardown(w *World, o *Decision) {
	e := w.Eventing
	const condition = operatorv1alpha1.ConditionDeleted
	force := e.Annotations[operatorv1alpha1.ForceDeletionAnnotation] == "true"
	blocked := func(reason, format string, args ...any) {
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(condition, false, reason, format+" To delete it nevertheless: kubectl -n %s annotate eventings.operator.kyma-project.io %s %s=true",
			append(args, e.Namespace, e.Name, operatorv1alpha1.ForceDeletionAnnotation)...)
	}
	if !slices.Contains(e.Finalizers, operatorv1alpha1.Finalizer) {
		return
	}
	if w.Object("Deployment", d.Names.Publisher()) == nil {
		o.Condition(operatorv1alpha1.ConditionPublisherProxyReady, false, operatorv1alpha1.ReasonDeployDeleted, "")
	}
	if w.Object("Deployment", d.Names.Controller()) == nil {
		o.Condition(operatorv1alpha1.ConditionSubscriptionManagerReady, false, operatorv1alpha1.ReasonStopped, "")
		d.abandoned(w, o, force)
	}
	if len(w.Subscriptions) > 0 && !force {
		blocked(operatorv1alpha1.ReasonSubscriptions, "Delete these Subscriptions first: %s.", names(w.Subscriptions))
		return
	}
	if d.exists(w, operatorv1alpha1.NATS) && !force && !d.drained(w) {
		d.drain(w, o, blocked)
		return
	}
	o.AtLeast(operatorv1alpha1.StateDeleting)
	o.Condition(condition, false, operatorv1alpha1.ReasonDeleting, "What the operator created is being removed.")
	o.Active, o.Serving = "", nil
	if d.removed(w, o, force) {
		if len(w.Claims) > 0 {
			o.do(Tell{"Normal", "VolumesLeft", "These volumes of NATS are left: " + claimNames(w)})
		}
		o.do(Release{})
	}
}

// drain stops the publisher and empties NATS. What would keep it from that is found out first:
// until then, events are taken.
func (d *Rules) drain(w *World, o *Decision, blocked func(reason, format string, args ...any)) {
	switch {
	case w.silent():
		o.look(silence - w.NATS.Away)
		o.AtLeast(operatorv1alpha1.StateDeleting)
		o.Condition(operatorv1alpha1.ConditionDeleted, false, operatorv1alpha1.ReasonDeleting, "NATS does not answer now.%s", w.problem())
		return
	case !w.NATS.Connected, len(foreignStreams(w)) > 0, w.NATS.Stream != nil && len(foreignConsumers(w)) > 0:
		d.emptied(w, o, blocked)
		return
	case !d.stopped(w, o, d.Names.Publisher(), publisherComponent):
		// Its pods answer what they have taken. What comes after that is refused by the Service.
	case w.Available() && w.accepts(d.Names):
		contract, _ := backend.ParseBackends(contractData(w.Object("ConfigMap", d.Names.Backends())))
		contract.Accept = nil
		o.do(d.contract(w, contract, "accept no more events"))
	case !d.emptied(w, o, blocked):
		return
	}
	o.AtLeast(operatorv1alpha1.StateDeleting)
	o.Condition(operatorv1alpha1.ConditionDeleted, false, operatorv1alpha1.ReasonDeleting, "The stream is closed, and is watched until it stays empty.")
}

// silent tells whether NATS has been away for a short time only.
func (w *World) silent() bool { return !w.NATS.Connected && w.NATS.Away < silence }

// problem is why NATS does not answer, as a sentence with a space before it; "" if nothing is
// known.
func (w *World) problem() string {
	problem := podProblem(w.podsOf(natsComponent))
	if problem == "" {
		problem = w.NATS.Problem
	}
	if problem == "" {
		return ""
	}
	return " " + strings.TrimSuffix(problem, ".") + "." // some end as the errors do that they quote
}

func (w *World) accepts(names backend.Names) bool {
	contract, err := backend.ParseBackends(contractData(w.Object("ConfigMap", names.Backends())))
	return err == nil && len(contract.Accept) > 0
}

// emptied closes the stream, waits until it stays empty, and marks NATS as drained. It is false if
// something keeps it from that: then blocked was told a reason and a message.
func (d *Rules) emptied(w *World, o *Decision, blocked func(reason, format string, args ...any)) bool {
	info := w.NATS.Stream
	config := w.Object("ConfigMap", d.Names.NATSConfig())
	switch {
	case !w.NATS.Connected:
		blocked(operatorv1alpha1.ReasonNATSUnreachable, "NATS may hold events, and does not answer.%s", w.problem())
		return false
	case len(foreignStreams(w)) > 0:
		o.look(askAgain) // streams are not watched
		blocked(operatorv1alpha1.ReasonForeignStreams, "NATS has streams of others: %s.", strings.Join(foreignStreams(w), ", "))
		return false
	case info != nil && len(foreignConsumers(w)) > 0:
		o.look(askAgain)
		blocked(operatorv1alpha1.ReasonForeignStreams, "The stream has consumers of others: %s.", strings.Join(foreignConsumers(w), ", "))
		return false
	case info != nil && stream.Open(info.Config):
		o.do(UpdateStream{info, stream.Closed(info.Config, w.Now), "close"})
	case info != nil && info.State.Msgs > 0:
		o.look(askAgain)
		if w.NATS.Dangling {
			blocked(operatorv1alpha1.ReasonDangling, "The stream holds %d events, with sequences from %d to %d, that no Subscription waits for. Nobody will get them.",
				info.State.Msgs, info.State.FirstSeq, info.State.LastSeq)
			return false
		}
		blocked(operatorv1alpha1.ReasonStreamNotEmpty, "The stream holds %d events that nobody took. %s", info.State.Msgs, backlogs(w))
		return false
	case info != nil && !w.NATS.Quiet && len(w.NATS.Behind) > 0 && w.NATS.BehindFor >= silence:
		// What one server says is not known to be all: a leader that was cut off answers with an
		// old state.
		o.look(askAgain)
		blocked(operatorv1alpha1.ReasonNATSUnreachable, "NATS may hold events. These servers are not up to date: %s.%s", strings.Join(w.NATS.Behind, ", "), w.problem())
		return false
	case info != nil && !w.NATS.Quiet:
		o.look(d.DrainWatch)
	case config == nil:
		// Somebody deleted it. Without it, nothing could say that NATS is drained.
		o.do(Create{d.evidence(w)})
	default:
		epoch := config.GetAnnotations()[backend.EpochAnnotation]
		for i := range w.Claims {
			if c := &w.Claims[i]; c.Annotations[backend.EpochAnnotation] != c.Annotations[drainedAnnotation] {
				o.do(Patch{claim(c), annotations(map[string]any{drainedAnnotation: c.Annotations[backend.EpochAnnotation]}), "write that it is drained"})
			}
		}
		o.do(Patch{config, map[string]any{"data": map[string]any{drainedKey: epoch}}, "write that NATS is drained"})
	}
	return true
}

// evidence is the ConfigMap <prefix>-nats-config without a configuration: it says only that the
// stream was opened.
func (d *Rules) evidence(w *World) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{openedKey: w.NewEpoch}}}
	u.SetNamespace(d.Namespace)
	u.SetName(d.Names.NATSConfig())
	u.SetLabels(d.Names.Labels(backend.PlaneNATS, "nats", d.Version, w.Eventing.Spec.Labels))
	u.SetAnnotations(map[string]string{backend.EpochAnnotation: w.NewEpoch})
	return u
}

// removed adds the deletions that are due, and is true when nothing is left to delete.
func (d *Rules) removed(w *World, o *Decision, force bool) bool {
	if !d.stopped(w, o, d.Names.Publisher(), publisherComponent) {
		return false
	}
	// Triggers are deleted after the Broker, by the controller: a Channel without subscribers drops
	// events.
	if broker := w.Object("Broker", d.Names.Broker()); broker != nil {
		o.delete(broker)
		return false
	}
	if !d.undone(w, o) || !d.stopped(w, o, d.Names.Controller(), controllerName) {
		return false
	}
	for _, name := range w.Triggers { // of a controller that did not work
		o.do(RemoveTrigger{name})
	}
	if len(w.Triggers) > 0 || !d.natsRemoved(w, o, force) || len(w.Pods) > 0 {
		return false
	}
	last := []Key{{"ConfigMap", d.Names.ControllerState()}, {"ConfigMap", d.Names.Backends()}}
	left := false
	for _, key := range w.keys() {
		if !slices.Contains(last, key) {
			o.delete(w.Ours[key])
			left = true
		}
	}
	return !o.inTurn(w, last, left)
}

// natsRemoved adds the deletions of NATS that are due, and is true when nothing is left of it but
// volumes that stay. What has evidence in it goes last.
func (d *Rules) natsRemoved(w *World, o *Decision, force bool) bool {
	if sts := w.Object("StatefulSet", d.Names.NATS()); sts != nil {
		o.delete(sts)
		return false
	}
	if len(w.podsOf(natsComponent)) > 0 {
		for _, p := range w.Orphans() { // nothing else ends them
			o.do(Remove{pod(&p)})
		}
		return false // their end is watched
	}
	retention := operatorv1alpha1.RetentionRetain
	if w.Eventing.Spec.Backend != nil {
		retention = w.Eventing.Spec.Backend.Config.NATSStorage.Retention
	}
	if retention == operatorv1alpha1.RetentionDelete && len(w.Claims) > 0 {
		if undrained := w.undrained(); len(undrained) == 0 || force {
			for i := range w.Claims {
				if w.Claims[i].DeletionTimestamp == nil {
					o.do(Remove{claim(&w.Claims[i])})
				}
			}
			return false
		}
	}
	last := []Key{{"Secret", d.Names.NATSTLS()}, {"ConfigMap", d.Names.NATSConfig()}}
	left := false
	for _, key := range w.keys() {
		if u := w.Ours[key]; u.GetLabels()[backend.PlaneLabel] == string(backend.PlaneNATS) && !slices.Contains(last, key) && !d.Lasting(key) {
			o.delete(u)
			left = true
		}
	}
	return !o.inTurn(w, last, left)
}

// inTurn deletes objects one after the other, when nothing else is left. It is true while something
// is.
func (o *Decision) inTurn(w *World, keys []Key, left bool) bool {
	for _, key := range keys {
		if u := w.Ours[key]; u != nil && !left {
			o.delete(u)
			left = true
		}
	}
	return left
}

// undone tells the controller that no backend serves any more, and waits until it has deleted what
// it created for Subscriptions. It waits for a controller that works, and not for ever: what is
// left is deleted with the stream, and finalizers by the operator.
func (d *Rules) undone(w *World, o *Decision) bool {
	const limit = 30 * time.Second
	controller := convert[appsv1.Deployment](w.Object("Deployment", d.Names.Controller()))
	is := w.Object("ConfigMap", d.Names.Backends())
	contract, err := backend.ParseBackends(contractData(is))
	if err != nil || controller == nil {
		return true
	}
	if len(contract.Serving)+len(contract.Accept) > 0 {
		contract.Serving, contract.Accept, contract.Epoch = nil, nil, w.NewEpoch
		o.do(d.contract(w, contract, "serve no backend"))
		return false
	}
	finalized := slices.ContainsFunc(w.Subscriptions, func(s Subscription) bool { return s.Finalizer })
	left := limit - w.Now.Sub(drift.LastWrite(is, d.Names.Marks()).Time)
	if controller.Status.AvailableReplicas == 0 || left <= 0 || w.followed(d.Names) && !finalized {
		return true
	}
	o.look(left)
	return false
}

// abandoned removes the finalizers of a controller that is gone: from Subscriptions that are being
// deleted, or from all by force.
func (d *Rules) abandoned(w *World, o *Decision, force bool) {
	for _, s := range w.Subscriptions {
		if s.Finalizer && (s.Deleting || force) {
			o.do(Abandon{s})
		}
	}
}

// delete deletes an object that is not on its way out already.
func (o *Decision) delete(u *unstructured.Unstructured) {
	if u.GetDeletionTimestamp() == nil {
		o.do(Remove{u})
	}
}

// foreignStreams are names of streams that the operator did not create. One of them may have the
// name of ours.
func foreignStreams(w *World) []string {
	names := slices.Clone(w.NATS.OtherStreams)
	if info := w.NATS.Stream; info != nil && stream.Epoch(info.Config) == "" {
		names = append(names, info.Config.Name)
	}
	return names
}

func foreignConsumers(w *World) (names []string) {
	for _, c := range w.NATS.Consumers {
		if c.Config.Metadata[stream.SubscriptionKey] == "" {
			names = append(names, c.Name)
		}
	}
	return names
}

func claimNames(w *World) string {
	var names []string
	for _, c := range w.Claims {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}
