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
	for _, s := range e.Steps() {
		if state := s.State(); !s.Writes() || state != journal.StepUnknown && state != journal.StepBegun {
			continue
		}
		made, certain, err := a.isMade(ctx, s)
		if err != nil {
			return err
		}
		s.SetInspected(made, certain)
	}
	return nil
}

// isMade says whether the cluster shows a step as made, and if not, whether it
// is certain that it was not.
func (a *Actor) isMade(ctx context.Context, s journal.Step) (made, certain bool, err error) {
	pre := s.Pre().Object
	if s.Verb == migration.Restart {
		return false, false, nil
	}
	live, err := a.Writer.Get(ctx, s.Ref, s.Subresource)
	if err != nil {
		return false, false, err
	}
	switch s.Verb {
	case migration.Recreate:
		deletion, ok := s.Deletion()
		return ok && deletion.Pre().Object != nil && deletion.IsShown() && live != nil && live.GetUID() != deletion.Pre().Object.GetUID(), true, nil
	case migration.Create:
		// One that was created and is gone leaves nothing to finish or to undo.
		return live != nil && live.GetAnnotations()[a.Writer.Names.Mark()] == a.Recorder.Mark(s), true, nil
	case migration.Delete:
		if pre == nil {
			return false, true, nil
		}
		if live != nil && live.GetUID() == pre.GetUID() && s.PatchNotMade() {
			// The unit patches it before it deletes it: somebody else deletes it.
			return false, true, nil
		}
		return live == nil || live.GetUID() != pre.GetUID() || live.GetDeletionTimestamp() != nil, true, nil
	case migration.Patch:
		switch {
		case live == nil:
			return s.Goes(), true, nil // it was patched, and deleted
		case pre != nil && live.GetUID() != pre.GetUID():
			_, recreates := s.Recreation()
			return recreates || s.Goes(), true, nil
		case pre != nil && patch.IsMade(pre, s.Change):
			return false, false, nil // it would change nothing: it is unknown
		}
		return patch.IsMade(live, s.Change), true, nil
	}
	return false, true, nil
}
