package act

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// protectorAnswer is the job's last answer to which objects carry live events.
type protectorAnswer struct {
	// turn is held while the answer is read, and while the job is asked, which takes time.
	turn      chan struct{}
	refs      []migration.Ref
	protected map[migration.Ref]string
	err       error
	answer    wait.Answer
	// dear: reading takes so long that no answer can be acted on.
	dear error
}

// AskProtector notes which objects the rollback of these units may delete, and asks the job
// which of them carry live events.
func (v *Reverser) AskProtector(ctx context.Context, entries []*journal.Entry) {
	k := &v.protector
	// The job knows objects at the versions of now. What is served at none is not deleted.
	note := func(refs ...migration.Ref) {
		for _, ref := range refs {
			if at, err := v.objects.at(ctx, ref, false); err == nil {
				k.refs = append(k.refs, at)
			}
		}
	}
	for _, e := range entries {
		for _, s := range e.Steps() {
			if s.Verb == migration.Create {
				note(s.Ref)
			}
			note(s.Pre().Absent...)
		}
	}
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	v.askAgain(ctx, v.actor.Writer.Cluster)
}

// askAgain is called with the protector's answer locked. It is as old as its reads.
func (v *Reverser) askAgain(ctx context.Context, c *migration.Cluster) {
	k := &v.protector
	k.answer = wait.Answer{Read: time.Now()}
	if protector, ok := v.actor.Job.(migration.Protector); ok && len(k.refs) > 0 {
		k.protected, k.err = protector.Protect(ctx, c, k.refs)
	}
	k.answer.Given = time.Now()
}

// mayDelete returns a ProtectedError if an object carries live events, by an answer of the
// job that may be acted on now: a rollback of thousands of changes takes minutes, in which
// events may take another path.
func (v *Reverser) mayDelete(ctx context.Context, ref migration.Ref) (wait.Answer, error) {
	k := &v.protector
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	var asks wait.Asks
	for k.dear == nil && !k.answer.Holds() {
		if k.answer.TooDear() {
			k.dear = asks.Again(k.answer)
		}
		if ctx.Err() != nil {
			return k.answer, context.Cause(ctx)
		}
		if k.dear == nil {
			v.askAgain(ctx, v.actor.NewCluster())
		}
	}
	if k.dear != nil {
		return k.answer, cannotTell(k.dear) // of all objects: nobody asks once more
	}
	if k.err != nil {
		return k.answer, cannotTell(k.err)
	}
	if reason, ok := k.protected[ref]; ok {
		return k.answer, &ProtectedError{ref, reason}
	}
	return k.answer, nil
}

func cannotTell(err error) error {
	return fmt.Errorf("cannot tell whether it carries live events: %w", err)
}

// ProtectedError says why an object stays.
type ProtectedError struct {
	Ref    migration.Ref
	Reason string
}

func (e *ProtectedError) Error() string { return e.Reason }

// removeUnprotected sends the deletion of an object that carries no live events. As often as the
// answer of the job is too old when a request is to leave, the job is asked again.
func removeUnprotected(ctx context.Context, v *Reverser, ref migration.Ref, remove func(context.Context) error) error {
	var asks wait.Asks
	for {
		answer, refused := v.mayDelete(ctx, ref)
		if refused != nil {
			return refused
		}
		err := v.actor.Writer.Write(write.WithDecision(ctx, &write.Decision{Answer: answer}), remove)
		if !errors.Is(err, write.ErrOldDecision) {
			return err
		}
		if old := asks.Again(answer); old != nil {
			return cannotTell(fmt.Errorf("%w; %w", old, err))
		}
	}
}
