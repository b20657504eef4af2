package decide

import (
	"fmt"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
)

// guarded is what the guard asks a backend.
type guarded interface {
	// breaks says how an action on one of its objects could lose an event; "" if it could not.
	breaks(*Rules, *observed.World, Action) string
}

// guard refuses all actions if one of them could lose an event. It looks at the world alone, and
// not at why something was decided.
func (d *Rules) guard(w *observed.World, o *Decision) {
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
func (d *Rules) broken(w *observed.World, a Action) string {
	switch a := a.(type) {
	case Create:
		if a.Object.GetKind() == "Deployment" && a.Object.GetName() == d.Names.Publisher() {
			return d.unready(w, observed.SendsTo(a.Object))
		}
	case Apply:
		if to := observed.SendsTo(a.Object); a.Object.GetKind() == "Deployment" && a.Object.GetName() == d.Names.Publisher() && to != observed.SendsTo(a.Observed) {
			return d.unready(w, to)
		}
	}
	for _, c := range d.known() {
		if why := c.breaks(d, w, a); why != "" {
			return why
		}
	}
	return ""
}

// permitted tells whether somebody has asked to remove a backend with what it holds: with the
// Eventing, or in the switch that leaves it.
func (d *Rules) permitted(w *observed.World, b operatorv1alpha1.BackendType) bool {
	to := b
	if last := w.Eventing.Status.Switch; last != nil && last.From == b {
		to = last.To
	}
	return w.Eventing.DeletionTimestamp != nil && w.Eventing.Annotations[operatorv1alpha1.ForceDeletionAnnotation] == "true" || w.Forced(b, to)
}

// unready says why the publisher must not send to a backend.
func (d *Rules) unready(w *observed.World, to operatorv1alpha1.BackendType) string {
	backends, err := w.Backends(d.Names)
	t := &reconciliation{Rules: d, w: w, target: to, wanted: d.carrier(to), backends: backends}
	switch {
	case err != nil || t.wanted == nil || !backends.Accept.Has(to) || !backends.Serving.Has(to):
		return fmt.Sprintf("%s is not served", to)
	case t.wanted.away(d, w, backends.Epoch):
		return ""
	case !t.taking():
		return fmt.Sprintf("%s takes no events", to)
	case !w.Followed(d.Names):
		return "the controller follows other backends"
	case len(t.waiting()) > 0:
		return fmt.Sprintf("these Subscriptions are not ready on %s: %s", to, observed.Names(t.waiting()))
	}
	return ""
}

// published says why a backend must not be closed.
func (d *Rules) published(w *observed.World, b operatorv1alpha1.BackendType) string {
	if observed.SendsTo(w.Object("Deployment", d.Names.Publisher())) == b {
		return fmt.Sprintf("the publisher sends to %s", b)
	}
	c := d.carrier(b)
	for _, p := range w.PodsOf(observed.Publisher) {
		if observed.Destination(p) == b && (!c.refusesLate || !w.Lingers(p)) {
			return fmt.Sprintf("Pod %s sends to %s", p.Name, b)
		}
	}
	return ""
}
