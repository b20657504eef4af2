package act

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Actor makes the changes of one run, and undoes them.
type Actor struct {
	// Job is asked what to wait for, and what can still be used.
	Job migration.Job
	Log *zap.Logger
	// Findings are what the run tells people.
	Findings *findings.List
	// Writer sends the requests, and Recorder knows what is known of each change.
	Writer   *write.Writer
	Recorder *journal.Recorder
	// NewCluster returns a view of the cluster that has read nothing yet.
	NewCluster     func() *migration.Cluster
	Namespaces     *Namespaces
	StateNamespace string
	// Undo returns the command that undoes the newest run of a job; nil: there is none to name.
	Undo func(job string) string

	// Otherwise counts objects that the API server stored otherwise than this run sent them.
	Otherwise atomic.Int64
	// More counts objects that are undone, and have something of others that they had not before.
	More atomic.Int64
	// LeftEffects counts objects that an undo left since there is no proof that they
	// come from the run.
	LeftEffects atomic.Int64
}

// Apply makes one change. It returns ChangeDone, or ChangeUnchanged if it was
// made already. Whatever the outcome of an earlier attempt, calling it again has
// no second effect.
func (a *Actor) Apply(ctx context.Context, s journal.Step) (string, error) {
	var err error
	result, before := migration.ChangeDone, s.State()
	switch s.Verb {
	case migration.Create:
		result, err = a.create(ctx, s)
	case migration.Recreate:
		result, err = a.recreate(ctx, s)
	case migration.Delete:
		if _, recreates := s.Recreation(); recreates {
			result, err = a.deleteForRecreation(ctx, s)
			break
		}
		result, err = a.Writer.Delete(ctx, s.Ref, s.Pre().Object, s.Latest(), s.Beginning())
	case migration.Patch:
		if over, failed := a.alreadyReplaced(ctx, s); over || failed != nil {
			result, err = migration.ChangeUnchanged, failed
			break
		}
		result, err = a.patch(ctx, s)
	case migration.Restart:
		if s.Late != nil {
			result, err = a.LateRestart(ctx, s, s.Entry.AnyUnusable())
			break
		}
		s.Beginning().Sending()
		err = a.Writer.Restart(ctx, s.Ref, s.Pre().Pods)
	default:
		err = fmt.Errorf("unknown verb %q", s.Verb)
	}
	if err != nil {
		if moved, ok := errors.AsType[*write.ChangedError](err); ok {
			moved.NoEffect = s.State() == before
		}
		return migration.ChangeFailed, &changeError{s.Verb, s.Ref, err}
	}
	return result, nil
}

// changeError says which change could not be made.
type changeError struct {
	verb migration.Verb
	ref  migration.Ref
	err  error
}

func (e *changeError) Error() string { return fmt.Sprintf("cannot %s %s: %v", e.verb, e.ref, e.err) }

func (e *changeError) Unwrap() error { return e.err }

func (a *Actor) create(ctx context.Context, s journal.Step) (string, error) {
	obj := s.Object.DeepCopy()
	mark := a.Recorder.Mark(s)
	if s.IsShown() {
		return a.stillMade(ctx, s.Ref, mark)
	}
	if err := a.Namespaces.sameAsDeleted(ctx, s); err != nil {
		return "", err
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[a.Writer.Names.Mark()] = mark
	obj.SetAnnotations(annotations)
	created, existed, err := a.Writer.CreateOnce(ctx, s.Ref, obj, mark, s.Beginning())
	if err != nil {
		return "", err
	}
	if existed {
		// It may have been edited since an earlier attempt created it: no hash of what
		// it is now, so that an undo compares it with what was planned.
		return migration.ChangeUnchanged, nil
	}
	a.Recorder.SetHash(s, created)
	lost := patch.Lost(created, obj, a.Recorder.Ignored)
	if created.GetAnnotations()[a.Writer.Names.Mark()] != mark {
		lost = append(lost, "metadata.annotations."+a.Writer.Names.Mark()) // no undo will find it
	}
	a.storedOtherwise(s.Ref, lost, created, obj)
	return migration.ChangeDone, nil
}

// stillMade says whether an object is there that an interrupted run has created. Who
// deleted it since has decided so: it is not created once more.
func (a *Actor) stillMade(ctx context.Context, ref migration.Ref, mark string) (string, error) {
	live, err := a.Writer.Get(ctx, ref, "")
	switch {
	case err != nil:
		return "", err
	case live == nil:
		return "", &write.ChangedError{Ref: ref, Problem: "was deleted by somebody else since an interrupted run had created it"}
	case live.GetAnnotations()[a.Writer.Names.Mark()] != mark:
		return "", &write.ChangedError{Ref: ref, Problem: "exists already and was not made by this run; it is left alone"}
	}
	// It may have been edited since: no hash of what it is now, so that an undo compares
	// it with what was planned.
	return migration.ChangeUnchanged, nil
}

// RestoreAdvice says how to undo the run later, when the cause of a failure is fixed.
func (a *Actor) RestoreAdvice() migration.Advice {
	advice := migration.Advice{Note: "The journal keeps the former state. Fix the cause, then undo the run."}
	if a.Undo != nil {
		advice.Command = a.Undo(a.Job.Name())
	}
	return advice
}
