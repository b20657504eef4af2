package decide

import (
	"fmt"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// guard refuses all actions if one of them could lose an event. It looks at the world alone, and
// not at why something was decided.
func (d *Rules) guard(w *World, o *Decision) {
	for _, a := range o.Actions {
		if why := d.broken(w, a); why != "" {
			o.Actions = nil
			o.AtLeast(operatorv1alpha1.StateError)
			o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonDeployFailed,
				"The operator does not %s, because %s. This is a fault of the operator. Report it.", a, why)
			return
		}
	}
}

// broken says why an action could lose an event; "" if it could not.
func (d *Rules) broken(w *World, a Action) string {
	forced := w.Eventing.DeletionTimestamp != nil && w.Eventing.Annotations[operatorv1alpha1.ForceDeletionAnnotation] == "true" ||
		(&turn{Rules: d, w: w, target: operatorv1alpha1.EventMesh, other: operatorv1alpha1.NATS}).forced()
	switch a := a.(type) {
	case Create:
		if a.Object.GetKind() == "Deployment" && a.Object.GetName() == d.Names.Publisher() {
			return d.unready(w, sendsTo(a.Object))
		}
	case Apply:
		if to := sendsTo(a.Object); a.Object.GetKind() == "Deployment" && a.Object.GetName() == d.Names.Publisher() && to != sendsTo(a.Observed) {
			return d.unready(w, to)
		}
	case UpdateStream:
		if stream.Open(a.Observed.Config) && !stream.Open(a.Config) {
			return d.published(w, operatorv1alpha1.NATS)
		}
	case Remove:
		switch kind := a.Observed.GetKind(); {
		case kind == "Broker":
			return d.published(w, operatorv1alpha1.EventMesh)
		case (kind == "StatefulSet" || kind == "PersistentVolumeClaim") && !forced && !d.drained(w) && !d.finished(w, operatorv1alpha1.NATS):
			return "NATS may hold events"
		case kind == "Pod" && (w.Eventing.DeletionTimestamp == nil || !forced && !d.drained(w)):
			return "NATS may hold events"
		}
	}
	return ""
}

// unready says why the publisher must not send to a backend.
func (d *Rules) unready(w *World, to operatorv1alpha1.BackendType) string {
	contract, err := backend.ParseBackends(contractData(w.Object("ConfigMap", d.Names.Backends())))
	t := &turn{Rules: d, w: w, target: to, contract: contract}
	switch {
	case err != nil || !contract.Accept.Has(to) || !contract.Serving.Has(to):
		return fmt.Sprintf("%s is not served", to)
	case to == operatorv1alpha1.NATS && !w.NATS.Connected && data(w.Object("ConfigMap", d.Names.NATSConfig()), openedKey) == contract.Epoch:
		return "" // it was opened with all its consumers, and is away now
	case !t.taking():
		return fmt.Sprintf("%s takes no events", to)
	case !w.followed(d.Names):
		return "the controller follows other backends"
	case len(t.waiting()) > 0:
		return fmt.Sprintf("these Subscriptions are not ready on %s: %s", to, names(t.waiting()))
	}
	return ""
}

// published says why a backend must not be closed.
func (d *Rules) published(w *World, b operatorv1alpha1.BackendType) string {
	if sendsTo(w.Object("Deployment", d.Names.Publisher())) == b {
		return fmt.Sprintf("the publisher sends to %s", b)
	}
	for _, p := range w.podsOf(publisherComponent) {
		if operatorv1alpha1.BackendType(p.Labels[backend.BackendLabel]) == b && (b == operatorv1alpha1.EventMesh || !w.lingers(p.Name)) {
			return fmt.Sprintf("Pod %s sends to %s", p.Name, b)
		}
	}
	return ""
}
