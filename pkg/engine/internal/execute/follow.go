package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// followed is what becomes of the units of a run that others follow, and of the changes that others
// wait for.
type followed struct {
	mu sync.Mutex
	// reasons are the units by their IDs.
	reasons map[string]*reason
	// again are the units of an interrupted run whose last write is left, and made by another unit
	// of the same ID.
	again map[*journal.Entry]bool
	// left are the objects of which a change was left, or is waited for.
	left map[migration.Ref]*leftObject
}

// reason is what becomes of the units of one ID, which others follow.
type reason struct {
	// open is how many of them have not ended; over is closed when none is left.
	open int
	over chan struct{}
	// made: one of them was made whole. left: one was left, in this run.
	made, left bool
}

func newFollowed() *followed {
	return &followed{reasons: map[string]*reason{}, again: map[*journal.Entry]bool{}, left: map[migration.Ref]*leftObject{}}
}

// expect counts the units of the run that others follow.
func (f *followed) expect(t Todo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	add := func(id string) {
		if f.reasons[id] == nil {
			f.reasons[id] = &reason{over: make(chan struct{})}
		}
		f.reasons[id].open++
	}
	for _, e := range t.Entries {
		add(e.Unit.ID)
		if end, ok := e.LastWrite(); ok && end.State() == journal.StepLeft {
			f.again[e] = slices.ContainsFunc(t.Units, func(u migration.Unit) bool {
				return u.ID == e.Unit.ID && slices.ContainsFunc(u.Changes, func(of migration.Change) bool { return of.Verb == end.Verb && of.Ref == end.Ref })
			})
		}
	}
	for i := range t.Units {
		add(t.Units[i].ID)
	}
}

// ended notes that a unit has come to its end: that all of it was made, or that it was left.
func (f *followed) ended(id string, made, left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.reasons[id]
	if r == nil || r.open == 0 {
		return // it is one of those that come last
	}
	r.made, r.left = r.made || made, r.left || left
	if r.open--; r.open == 0 {
		close(r.over)
	}
}

// conclude tells those that wait for the unit what became of it.
func (f *followed) conclude(e *journal.Entry) {
	for _, s := range e.Steps() {
		if wasLeft(s) {
			f.abandon(s.Change)
		}
	}
	end, writes := e.LastWrite()
	made := !writes || end.Result() != "" && !wasLeft(end)
	f.ended(e.Unit.ID, made, !made && !f.again[e])
}

func wasLeft(s journal.Step) bool {
	return s.Result() == migration.ChangeLeft || s.Result() == migration.ChangeRolledBack
}

// await waits until all units that this one follows have ended; false if no more may
// begin. Those that are no part of this run have ended before it.
func (f *followed) await(work context.Context, e *journal.Entry) bool {
	for _, id := range e.Unit.Follows {
		f.mu.Lock()
		r := f.reasons[id]
		f.mu.Unlock()
		if r == nil {
			continue
		}
		select {
		case <-r.over:
		case <-work.Done():
			return false
		}
	}
	return work.Err() == nil
}

// lost says whether a unit that follows others, and of which nothing was begun, has
// lost its reason: one of them was left.
func (f *followed) lost(e *journal.Entry) bool {
	if e.AnyBegun() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(e.Unit.Follows, func(id string) bool {
		r := f.reasons[id]
		return r != nil && r.open == 0 && (!r.made || r.left)
	})
}

// leave leaves a unit that has lost its reason. The unit that it follows has said why.
func (f *followed) leave(a *act.Actor, e *journal.Entry) {
	why := fmt.Sprintf("it follows from %s, which was left", e.Unit.Follows[0])
	if len(e.Unit.Follows) > 1 {
		why = fmt.Sprintf("it follows from %s, of which one was left", migration.Count(len(e.Unit.Follows), "unit"))
	}
	journal.Leave(e.Steps(), why)
	a.Log.Info("not done: what it follows from was left", zap.String("unit", e.Unit.ID))
}

// leftObject is an object of which a unit may leave its change while others wait for that.
type leftObject struct {
	left    bool
	waiting map[*context.CancelCauseFunc]bool
}

// errLeft ends a wait for what nobody will do.
var errLeft = errors.New("the change that it waits for was left")

func (f *followed) objectOf(ref migration.Ref) *leftObject {
	if f.left[ref] == nil {
		f.left[ref] = &leftObject{waiting: map[*context.CancelCauseFunc]bool{}}
	}
	return f.left[ref]
}

// abandon lets go those that wait for a change that was left.
func (f *followed) abandon(ch *migration.Change) {
	if !ch.Writes() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.objectOf(ch.Ref)
	o.left = true
	for cancel := range o.waiting {
		(*cancel)(errLeft)
	}
}

// unlessLeft waits, for an Await before a guarded change only as long as no other unit has left
// its change of the object: then nobody will do what is waited for, and the job is asked whether
// the guarded change may be made without it.
func (f *followed) unlessLeft(ctx context.Context, s journal.Step, wait func(context.Context) error) error {
	next, ok := s.NextWrite()
	if !ok {
		next = s
	}
	if s.Verb != migration.Await || !next.Guard {
		return wait(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.mu.Lock()
	o := f.objectOf(s.Ref)
	o.waiting[&cancel] = true
	if o.left {
		cancel(errLeft)
	}
	f.mu.Unlock()
	err := wait(ctx)
	f.mu.Lock()
	delete(o.waiting, &cancel)
	f.mu.Unlock()
	if err != nil && errors.Is(context.Cause(ctx), errLeft) {
		return nil
	}
	return err
}
