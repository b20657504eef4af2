package decide

import (
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
)

// leaver is what the outgoing backend of a switch is asked.
type leaver interface {
	// exists tells whether there is anything of it but volume claims.
	exists(*Rules, *observed.World) bool
	// finished tells whether it holds no event, and takes none any more.
	finished(*Rules, *observed.World) bool
	// pending is how many events it holds, if that is known.
	pending(*observed.World) int64
	// leave closes it, and waits until it holds nothing.
	leave(*reconciliation)
	// remove removes it when it is finished, and when the controller knows that.
	remove(*reconciliation)
}

// leave closes the first of the other backends, waits until it holds nothing, and removes it. The
// next one follows when nothing of it is there any more.
func (t *reconciliation) leave() {
	switch from := t.leaving; {
	case from == nil:
	case !from.finished(t.Rules, t.w):
		from.leave(t)
	case !t.w.Followed(t.Names):
		t.await(operatorv1alpha1.ReasonRemoving, awaitController, "The controller has not read ConfigMap %s yet.", t.Names.Backends())
	default:
		from.remove(t)
	}
}

// forced tells whether somebody has asked to remove the outgoing backend with what it holds, in
// this switch.
func (t *reconciliation) forced() bool { return t.w.Forced(t.leaving.is, t.target) }
