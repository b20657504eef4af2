package act

import (
	"context"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Inspect finds out by the cluster which changes of an interrupted unit were, or
// may have been, made: there is no mark of them.
func (a *Actor) Inspect(ctx context.Context, e *journal.Entry) error {
	if e.Done {
		return nil
	}
	for i := range e.Unit.Changes {
		ch := &e.Unit.Changes[i]
		if state := a.Recorder.StateOf(e, i); !ch.Writes() || state != journal.StepUnknown && state != journal.StepBegun {
			continue
		}
		made, certain, err := a.isMade(ctx, e, i)
		if err != nil {
			return err
		}
		e.Steps[i].Made = made
		if !made && certain {
			a.Recorder.SetState(e, i, journal.StepNotBegun)
		}
	}
	return nil
}

// isMade says whether the cluster shows a change as made, and if not, whether it
// is certain that it was not.
func (a *Actor) isMade(ctx context.Context, e *journal.Entry, i int) (made, certain bool, err error) {
	ch, pre := &e.Unit.Changes[i], e.Pre[i].Object
	if ch.Verb == migration.Restart {
		return false, false, nil
	}
	live, err := a.Writer.Get(ctx, ch.Ref, ch.Subresource)
	if err != nil {
		return false, false, err
	}
	switch ch.Verb {
	case migration.Recreate:
		deleted := e.DeletionOf(i)
		return deleted >= 0 && e.Pre[deleted].Object != nil && e.Steps[deleted].Made && live != nil && live.GetUID() != e.Pre[deleted].Object.GetUID(), true, nil
	case migration.Create:
		// One that was created and is gone leaves nothing to finish or to undo.
		return live != nil && live.GetAnnotations()[a.Writer.Names.Mark()] == a.Recorder.Mark(e, i), true, nil
	case migration.Delete:
		if pre == nil {
			return false, true, nil
		}
		if live != nil && live.GetUID() == pre.GetUID() && e.PatchNotMade(i) {
			// The unit patches it before it deletes it: somebody else deletes it.
			return false, true, nil
		}
		return live == nil || live.GetUID() != pre.GetUID() || live.GetDeletionTimestamp() != nil, true, nil
	case migration.Patch:
		switch {
		case live == nil:
			return e.Goes(i), true, nil // it was patched, and deleted
		case pre != nil && live.GetUID() != pre.GetUID():
			return journal.RecreationOf(&e.Unit, i) >= 0 || e.Goes(i), true, nil
		case pre != nil && patch.IsMade(pre, ch):
			return false, false, nil // it would change nothing: it is unknown
		}
		return patch.IsMade(live, ch), true, nil
	}
	return false, true, nil
}
