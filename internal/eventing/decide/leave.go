package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
)

// leaver is what a backend is asked that is left, in a switch.
type leaver interface {
	// exists tells whether there is anything of it but volume claims.
	exists(*Rules, *World) bool
	// finished tells whether it holds no event, and takes none any more.
	finished(*Rules, *World) bool
	// pending is how many events it holds, if that is known.
	pending(*World) int64
	// leave closes it, and waits until it holds nothing.
	leave(*turn)
	// remove removes it when it is finished, and when the controller knows that.
	remove(*turn)
}

// leave closes the first of the other backends, waits until it holds nothing, and removes it. The
// next one is left when nothing of it is there any more.
func (t *turn) leave() {
	switch from := t.leaving; {
	case from == nil:
	case !from.finished(t.Rules, t.w):
		from.leave(t)
	case !t.w.followed(t.Names):
		t.await(operatorv1alpha1.ReasonRemoving, awaitController, "The controller has not read ConfigMap %s yet.", t.Names.Backends())
	default:
		from.remove(t)
	}
}

// lingers tells whether a pod has not ended in the time that it was given.
func (w *World) lingers(p corev1.Pod) bool {
	// The time of its deletion is that at which it is to be gone.
	return p.DeletionTimestamp != nil && w.Now.Sub(p.DeletionTimestamp.Time) > lingering
}

// forced tells whether somebody has asked to remove the backend that is left with what it holds, in
// this switch.
func (t *turn) forced() bool { return t.w.forced(t.leaving.is, t.target) }

// forced tells whether somebody has asked to remove a backend with what it holds, in a switch.
func (w *World) forced(from, to operatorv1alpha1.BackendType) bool {
	asked := w.Eventing.Annotations[operatorv1alpha1.ForceTeardownAnnotation]
	return asked != "" && asked == w.forceValue(from, to)
}

// forceValue is the value of the annotation that asks for it: one of another switch does nothing.
func (w *World) forceValue(from, to operatorv1alpha1.BackendType) string {
	return string(from) + "/" + w.since(from, to).UTC().Format(time.RFC3339)
}
