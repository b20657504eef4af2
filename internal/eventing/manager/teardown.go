package manager

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// The keys of the ConfigMap <prefix>-nats-config in addition to the configuration. Each has an epoch.
const (
	// openedKey: the stream of this epoch was opened, or is about to be. Without it, no event was ever taken.
	openedKey = "opened"
	// drainedKey: the stream of this epoch is closed, and stays empty.
	drainedKey = "drained"
)

// drained tells whether it is known that NATS holds no event: no event was ever taken, or a mark says that none is left.
func (d *decider) drained(w *World) bool {
	config := w.object("ConfigMap", d.names.NATSConfig())
	if config == nil {
		// It is the last one that is deleted, and the first one that is created after the Secrets.
		return w.object("StatefulSet", d.names.NATS()) == nil && len(w.undrained()) == 0
	}
	if epoch := data(config, drainedKey); epoch != "" {
		return epoch == config.GetAnnotations()[backend.EpochAnnotation]
	}
	return data(config, openedKey) == "" && len(w.undrained()) == 0
}

// teardown removes what the operator created, and the finalizer last. It stops where an event could be lost.
func (d *decider) teardown(w *World, o *Decision) {
	e := w.Eventing
	const condition = operatorv1alpha1.ConditionDeleted
	force := e.Annotations[operatorv1alpha1.ForceDeletionAnnotation] == "true"
	blocked := func(reason, format string, args ...any) {
		o.state(operatorv1alpha1.StateWarning)
		o.condition(condition, false, reason, format+" To delete it nevertheless: kubectl -n %s annotate eventings.operator.kyma-project.io %s %s=true",
			append(args, e.Namespace, e.Name, operatorv1alpha1.ForceDeletionAnnotation)...)
	}
	if !slices.Contains(e.Finalizers, operatorv1alpha1.Finalizer) {
		return
	}
	if len(w.Subscriptions) > 0 && !force {
		blocked(operatorv1alpha1.ReasonSubscriptions, "Delete these Subscriptions first: %s.", names(w.Subscriptions))
		return
	}
	installed := slices.ContainsFunc(w.keys(), func(k Key) bool { return w.Ours[k].GetLabels()[backend.PlaneLabel] == string(backend.PlaneNATS) })
	if installed && !force && !d.drained(w) {
		d.drain(w, o, blocked)
		return
	}
	o.state(operatorv1alpha1.StateDeleting)
	o.condition(condition, false, operatorv1alpha1.ReasonDeleting, "What the operator created is being removed.")
	o.Active, o.Serving = "", nil
	if d.removed(w, o, force) {
		for _, s := range w.Subscriptions {
			if s.Finalizer {
				o.do(abandon{s})
			}
		}
		if len(w.Claims) > 0 {
			o.do(tell{"Normal", "VolumesLeft", "These volumes of NATS are left: " + claimNames(w)})
		}
		o.do(release{})
	}
}

// drain closes the stream, and marks NATS as drained when nothing is in it.
func (d *decider) drain(w *World, o *Decision, blocked func(reason, format string, args ...any)) {
	info := w.NATS.Stream
	config := w.object("ConfigMap", d.names.NATSConfig())
	switch {
	case !w.NATS.Connected:
		problem := podProblem(w)
		if problem == "" {
			problem = w.NATS.Problem
		}
		blocked(operatorv1alpha1.ReasonNATSUnreachable, "NATS may hold events, and does not answer. %s", problem)
		return
	case len(w.NATS.OtherStreams) > 0:
		o.look(askAgain) // streams are not watched
		blocked(operatorv1alpha1.ReasonForeignStreams, "NATS has streams of others: %s.", strings.Join(w.NATS.OtherStreams, ", "))
		return
	case info != nil && len(foreignConsumers(w)) > 0:
		o.look(askAgain)
		blocked(operatorv1alpha1.ReasonForeignStreams, "The stream has consumers of others: %s.", strings.Join(foreignConsumers(w), ", "))
		return
	case info != nil && stream.Open(info.Config):
		if contract, err := backend.ParseBackends(contractData(w.object("ConfigMap", d.names.Backends()))); err == nil && len(contract.Accept) > 0 {
			contract.Accept = nil
			o.do(d.contract(w, contract, "accept no more events"))
		}
		o.do(updateStream{info, stream.Closed(info.Config, w.Now), "close"})
	case info != nil && info.State.Msgs > 0:
		blocked(operatorv1alpha1.ReasonStreamNotEmpty, "The stream holds %d events that nobody took. %s", info.State.Msgs, backlogs(w))
		o.look(askAgain)
		return
	case info != nil && !w.NATS.Quiet:
		o.look(d.drainWatch)
	case config == nil:
		// Somebody deleted it. Without it, nothing could say that NATS is drained.
		o.do(create{d.evidence(w)})
	default:
		epoch := config.GetAnnotations()[backend.EpochAnnotation]
		for i := range w.Claims {
			if c := &w.Claims[i]; c.Annotations[backend.EpochAnnotation] != c.Annotations[drainedAnnotation] {
				o.do(patch{claim(c), annotations(map[string]any{drainedAnnotation: c.Annotations[backend.EpochAnnotation]}), "write that it is drained"})
			}
		}
		o.do(patch{config, map[string]any{"data": map[string]any{drainedKey: epoch}}, "write that NATS is drained"})
	}
	o.state(operatorv1alpha1.StateDeleting)
	o.condition(operatorv1alpha1.ConditionDeleted, false, operatorv1alpha1.ReasonDeleting, "The stream is closed, and is watched until it stays empty.")
}

// evidence is the ConfigMap <prefix>-nats-config without a configuration: it says only that the stream was opened.
func (d *decider) evidence(w *World) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{openedKey: w.NewEpoch}}}
	u.SetNamespace(d.namespace)
	u.SetName(d.names.NATSConfig())
	u.SetLabels(d.names.Labels(backend.PlaneNATS, "nats", d.version, w.Eventing.Spec.Labels))
	u.SetAnnotations(map[string]string{backend.EpochAnnotation: w.NewEpoch})
	return u
}

// removed adds the deletions that are due, and is true when nothing is left to delete. What has evidence in it goes last.
func (d *decider) removed(w *World, o *Decision, force bool) bool {
	sts := w.object("StatefulSet", d.names.NATS())
	if sts != nil {
		o.delete(sts)
		return false
	}
	if len(w.Pods) > 0 {
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
					o.do(remove{claim(&w.Claims[i])})
				}
			}
			return false
		}
	}
	last := []Key{{"Secret", d.names.NATSUsers()}, {"Secret", d.names.NATSCA()}, {"Secret", d.names.NATSTLS()},
		{"ConfigMap", d.names.ControllerState()}, {"ConfigMap", d.names.Backends()}, {"ConfigMap", d.names.NATSConfig()}}
	left := false
	for _, key := range w.keys() {
		if !slices.Contains(last, key) {
			o.delete(w.Ours[key])
			left = true
		}
	}
	for _, key := range last {
		if u := w.Ours[key]; u != nil && !left {
			o.delete(u)
			left = true // one after the other
		}
	}
	return !left
}

// delete deletes an object that is not on its way out already.
func (o *Decision) delete(u *unstructured.Unstructured) {
	if u.GetDeletionTimestamp() == nil {
		o.do(remove{u})
	}
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
