package execute

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// merger is what a run is about to do, and what of that an interrupted run has begun.
type merger struct {
	todo Todo
	// known are the units that go on whole, by their ID.
	known map[string]bool
	// covered are the objects of the units that go on, goOn their changes.
	covered map[migration.Ref]bool
	goOn    map[journal.ChangeKey]bool
	// stays are the objects that this job has made, that the plan wants to be others, and that
	// cannot be deleted.
	stays map[migration.Ref]bool
}

// Merge brings together what an interrupted run left open and what is planned
// now. The journal decides what has to be finished because it was begun: see
// journal.Continued. The plan, which saw the cluster as it is, decides everything else.
// It may write, and so comes after the preflight.
func Merge(ctx context.Context, a *act.Actor, plan *migration.Plan) (Todo, error) {
	m := merger{known: map[string]bool{}, covered: map[migration.Ref]bool{}, goOn: map[journal.ChangeKey]bool{}, stays: map[migration.Ref]bool{}}
	if a.Recorder.Journal != nil {
		if err := m.goOnWith(ctx, a, plan); err != nil {
			return m.todo, err
		}
	}
	m.plan(plan, a.Findings)
	return m.todo, nil
}

// goOnWith finds out what was made of an interrupted run, and which of its units go on.
func (m *merger) goOnWith(ctx context.Context, a *act.Actor, plan *migration.Plan) error {
	journaled, wanted, begun := a.Recorder.Journal.Entries(), journal.Wanted(plan), map[string]bool{}
	for _, e := range journaled {
		if err := a.Inspect(ctx, e); err != nil {
			return err
		}
		begun[e.Unit.ID] = begun[e.Unit.ID] || e.AnyBegun()
	}
	if err := m.deleteReplaced(ctx, a, journaled, wanted); err != nil {
		return err
	}
	for _, e := range journaled {
		e.ReportEarlier()
	}
	if !m.resume(journaled, journal.Continued(journaled, wanted, begun)) {
		return nil
	}
	// A unit that is given up no longer belongs to this run, even if it is killed again.
	for _, c := range a.Recorder.Journal.All() {
		if err := a.Recorder.Journals.Mark(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// deleteReplaced deletes what this job has made, and the plan wants to be another object.
func (m *merger) deleteReplaced(ctx context.Context, a *act.Actor, journaled []*journal.Entry, wanted map[journal.ChangeKey]*migration.Change) error {
	for _, e := range journaled {
		for _, s := range e.Steps() {
			want := wanted[journal.ChangeKey{Verb: migration.Create, Ref: s.Ref}]
			if s.Verb != migration.Create || want == nil || !s.State().Begun() || !s.MadeOrBegun() || sameObject(want.Built(), s.Object) {
				continue
			}
			gone, err := act.Replaced(ctx, a, s)
			if err != nil {
				return err
			}
			m.stays[s.Ref] = !gone
		}
	}
	return nil
}

// resume takes the units of a journal that go on, and gives the others up. It returns whether there
// are any of those.
func (m *merger) resume(journaled []*journal.Entry, continues map[*journal.Entry]bool) (gaveUp bool) {
	for _, e := range journaled {
		if e.Done {
			continue
		}
		if !continues[e] {
			gaveUp = true
			e.GiveUp()
			continue
		}
		for _, s := range e.Steps() {
			if s.State() != journal.StepLeft {
				m.covered[s.Ref], m.goOn[journal.KeyOf(s.Change)] = true, true
			}
		}
		m.known[e.Unit.ID] = m.known[e.Unit.ID] || !e.AnyLeft()
		if e.Last {
			m.todo.LastEntries = append(m.todo.LastEntries, e)
		} else {
			m.todo.Entries = append(m.todo.Entries, e)
		}
	}
	return gaveUp
}

// plan takes the units of a plan, but for what goes on as an interrupted run has planned it.
func (m *merger) plan(plan *migration.Plan, told *findings.List) {
	var postponed []migration.Unit
	for _, u := range plan.Units {
		if len(m.goOn) > 0 {
			u.Changes = slices.DeleteFunc(slices.Clone(u.Changes), func(ch migration.Change) bool { return ch.Writes() && m.goOn[journal.KeyOf(&ch)] })
		}
		switch {
		case m.known[u.ID], slices.ContainsFunc(u.Changes, func(ch migration.Change) bool { return m.stays[ch.Ref] }):
			if u.Writes() {
				postponed = append(postponed, u)
			}
		case u.Writes():
			m.todo.Units = append(m.todo.Units, u)
		case len(u.Changes) > 0 && !m.covered[u.Changes[0].Ref]:
			m.todo.Waits = append(m.todo.Waits, u)
		}
	}
	m.todo.Units = Postpone(m.todo.Units, postponed, told)
	for _, u := range plan.Last {
		if !m.known[u.ID] {
			m.todo.Last = append(m.todo.Last, u)
		}
	}
}

// sameObject says whether two plans want the same object.
func sameObject(a, b *unstructured.Unstructured) bool {
	return a != nil && b != nil && reflect.DeepEqual(a.Object, b.Object)
}

// Postpone leaves out, and says so, what would follow from units of the plan that this run does not
// do, since it goes on with those of an interrupted one: it would wait for what nobody does.
func Postpone(units, postponed []migration.Unit, told *findings.List) []migration.Unit {
	left := map[string]bool{}
	leave := func(u *migration.Unit, why string) {
		left[u.ID] = true
		for i := range u.Changes {
			if ch := &u.Changes[i]; ch.Writes() {
				told.Tell(migration.Finding{
					ID: "postponed", Severity: migration.Deferred, Object: ch.Ref.String(),
					Problem: fmt.Sprintf("not done in this run (%s): %s", ch.Verb, why), Note: "The next run does it. Run the job again.",
				})
			}
		}
	}
	for i := range postponed {
		leave(&postponed[i], "an interrupted run began "+postponed[i].ID+" without that")
	}
	for were := -1; were != len(left); {
		were = len(left)
		units = slices.DeleteFunc(units, func(u migration.Unit) bool {
			i := slices.IndexFunc(u.Follows, func(id string) bool { return left[id] })
			if i >= 0 {
				leave(&u, "it follows from "+u.Follows[i]+", which is not done either")
			}
			return i >= 0
		})
	}
	return units
}
