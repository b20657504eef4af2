package decide

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/rollout"
)

// remover is what a backend is asked when the Eventing is deleted.
type remover interface {
	// drain stops the publisher and empties it. It is true if no event is left in it that somebody
	// could want; otherwise it says what is awaited or, by blocked, what keeps it from that.
	drain(*Rules, *observed.World, *Decision, blocked) bool
	// withdrawn deletes what has to be gone while the controller still works, and is true when that
	// is gone.
	withdrawn(*Rules, *observed.World, *Decision) bool
	// removed deletes the rest, and is true when nothing is left of it but volumes that stay. force
	// deletes what may hold events.
	removed(d *Rules, w *observed.World, o *Decision, force bool) bool
}

// blocked is told the reason and the message of what people have to do first.
type blocked func(reason, format string, args ...any)

// teardown removes what the operator created, and the finalizer last. It stops where an event could
// be lost.
func (d *Rules) teardown(w *observed.World, o *Decision) {
	e := w.Eventing
	const condition = operatorv1alpha1.ConditionDeleted
	force := e.Annotations[operatorv1alpha1.ForceDeletionAnnotation] == "true"
	stopped := func(reason, format string, args ...any) {
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
		o.abandon(w, force)
	}
	if len(w.Subscriptions) > 0 && !force {
		stopped(operatorv1alpha1.ReasonSubscriptions, "Delete these Subscriptions first: %s.", observed.Names(w.Subscriptions))
		return
	}
	for _, c := range d.known() {
		if !force && !c.drain(d, w, o, stopped) {
			return
		}
	}
	o.AtLeast(operatorv1alpha1.StateDeleting)
	o.Condition(condition, false, operatorv1alpha1.ReasonDeleting, "What the operator created is being removed.")
	o.Active, o.Serving = "", nil
	if d.removed(w, o, force) {
		var volumes []string
		for _, c := range w.Claims {
			volumes = append(volumes, c.Name)
		}
		if len(volumes) > 0 {
			o.do(Tell{"Normal", "VolumesLeft", "These volumes of NATS are left: " + strings.Join(volumes, ", ")})
		}
		o.do(Release{})
	}
}

// removed adds the deletions that are due, and is true when nothing is left to delete.
func (d *Rules) removed(w *observed.World, o *Decision, force bool) bool {
	if !d.stopped(w, o, d.Names.Publisher(), observed.Publisher) {
		return false
	}
	for _, c := range d.known() {
		if !c.withdrawn(d, w, o) {
			return false
		}
	}
	if !d.undone(w, o) || !d.stopped(w, o, d.Names.Controller(), observed.Controller) {
		return false
	}
	for _, c := range d.known() {
		if !c.removed(d, w, o, force) {
			return false
		}
	}
	if len(w.Pods) > 0 {
		return false
	}
	last := []observed.Key{{Kind: "ConfigMap", Name: d.Names.ControllerState()}, {Kind: "ConfigMap", Name: d.Names.Backends()}}
	left := false
	for _, key := range w.Keys() {
		if !slices.Contains(last, key) {
			o.delete(w.Ours[key])
			left = true
		}
	}
	return !o.inTurn(w, last, left)
}

// inTurn deletes objects one after the other, when nothing else is left. It is true while something
// is.
func (o *Decision) inTurn(w *observed.World, keys []observed.Key, left bool) bool {
	for _, key := range keys {
		if u := w.Ours[key]; u != nil && !left {
			o.delete(u)
			left = true
		}
	}
	return left
}

// delete deletes an object that is not on its way out already.
func (o *Decision) delete(u *unstructured.Unstructured) {
	if u.GetDeletionTimestamp() == nil {
		o.do(Remove{u})
	}
}

// undone tells the controller that no backend serves any more, and waits until it has deleted what
// it created for Subscriptions. It waits for a controller that works, and not for ever: what is
// left is deleted with the stream, and finalizers by the operator.
func (d *Rules) undone(w *observed.World, o *Decision) bool {
	const limit = 30 * time.Second
	controller := rollout.As[appsv1.Deployment](w.Object("Deployment", d.Names.Controller()))
	is := w.Object("ConfigMap", d.Names.Backends())
	backends, err := w.Backends(d.Names)
	if err != nil || controller == nil {
		return true
	}
	if !backends.Removed || len(backends.Serving)+len(backends.Accept) > 0 {
		backends.Serving, backends.Accept, backends.Removed, backends.Epoch = nil, nil, true, w.NewEpoch
		o.do(d.backends(w, backends, "serve no backend"))
		return false
	}
	finalized := slices.ContainsFunc(w.Subscriptions, func(s observed.Subscription) bool { return s.Finalizer })
	left := limit - w.Now.Sub(drift.LastWrite(is, d.Names.Marks()).Time)
	if controller.Status.AvailableReplicas == 0 || left <= 0 || w.Followed(d.Names) && !finalized {
		return true
	}
	o.look(left)
	return false
}

// abandon removes the finalizers of a controller that is gone: from Subscriptions that are being
// deleted, or from all by force.
func (o *Decision) abandon(w *observed.World, force bool) {
	for _, s := range w.Subscriptions {
		if s.Finalizer && (s.Deleting || force) {
			o.do(Abandon{s})
		}
	}
}
