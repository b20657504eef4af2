package journal

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Step is one change of one unit of the journal. What is known of it is in its entry.
type Step struct {
	*migration.Change
	Entry *Entry
	Index int
}

// Step returns the step of change i.
func (e *Entry) Step(i int) Step { return Step{&e.Unit.Changes[i], e, i} }

// Steps are those of all changes, in the order of the unit.
func (e *Entry) Steps() []Step {
	all := make([]Step, len(e.Unit.Changes))
	for i := range all {
		all[i] = e.Step(i)
	}
	return all
}

// Pre is what the step found.
func (s Step) Pre() Preimage { return s.Entry.Pre[s.Index] }

// Latest is the object of the step as the answer to the unit's last write of it showed it, nil if
// there was none.
func (s Step) Latest() *unstructured.Unstructured { return s.Entry.latest[s.Ref] }

// SetLatest keeps the object of the step as the answer to a write of it showed it.
func (s Step) SetLatest(live *unstructured.Unstructured) {
	if s.Entry.latest == nil {
		s.Entry.latest = map[migration.Ref]*unstructured.Unstructured{}
	}
	s.Entry.latest[s.Ref] = live
}

// SetPods notes which pods a restart replaces, of one that decides when its turn comes.
func (s Step) SetPods(uids []types.UID) { s.Entry.Pre[s.Index].Pods = uids }

// State says what is known of the step.
func (s Step) State() StepState {
	s.Entry.mu.Lock()
	defer s.Entry.mu.Unlock()
	return s.known().state
}

// SetState keeps what is known of the step. One that is left stays so.
func (s Step) SetState(state StepState) {
	s.Entry.mu.Lock()
	defer s.Entry.mu.Unlock()
	if s.known().state != StepLeft {
		s.known().state = state
	}
}

// known is what is known of the step. The lock of its entry guards it.
func (s Step) known() *known { return &s.Entry.known[s.Index] }

// Beginning keeps the state of the step: begun from its first request on, unless all of them are
// known to have had no effect.
func (s Step) Beginning() write.Attempt {
	before := s.State()
	set := func(state StepState) {
		s.Entry.mu.Lock()
		defer s.Entry.mu.Unlock()
		s.known().state = state
	}
	return write.Attempt{Sending: func() { set(StepBegun) }, Refused: func() { set(before) }}
}

// SetInspected keeps whether the cluster shows the step made, which an earlier process may have
// begun, and if not, whether it is certain that it was not.
func (s Step) SetInspected(made, certain bool) {
	s.Entry.mu.Lock()
	s.known().made = made
	s.Entry.mu.Unlock()
	if !made && certain {
		s.SetState(StepNotBegun)
	}
}

// IsShown says whether an earlier process may have begun the step, and the cluster shows it made.
func (s Step) IsShown() bool {
	s.Entry.mu.Lock()
	defer s.Entry.mu.Unlock()
	return s.known().made
}

// MadeOrBegun says whether the step has had an effect, as far as is known.
func (s Step) MadeOrBegun() bool {
	state := s.State()
	return s.IsShown() || state.IsDone() || state == StepBegun && !s.Entry.Read
}

// Effects are the objects that a controller made because of the step, as far as they are noted.
func (s Step) Effects() []EffectMark {
	s.Entry.mu.Lock()
	defer s.Entry.mu.Unlock()
	return slices.Clone(s.known().effects)
}

// NoteEffect keeps what is known of an object in the place of a side effect of the step, unless
// something is known already: what is seen first is nearest to what a controller has made.
func (s Step) NoteEffect(mark EffectMark) {
	s.Entry.mu.Lock()
	defer s.Entry.mu.Unlock()
	k := s.known()
	if !slices.ContainsFunc(k.effects, func(known EffectMark) bool { return known.Ref == mark.Ref }) {
		k.effects = append(slices.Clip(k.effects), mark)
	}
}

// Unusable is the UID of an object that an earlier attempt recreated, and that the step deletes
// once more, "" if there is none.
func (s Step) Unusable() types.UID {
	s.Entry.mu.Lock()
	defer s.Entry.mu.Unlock()
	return s.Entry.unusable[s.Index]
}

// SetUnusable notes that the step deletes an object of that UID, which an earlier attempt
// recreated.
func (s Step) SetUnusable(uid types.UID) {
	s.Entry.mu.Lock()
	defer s.Entry.mu.Unlock()
	if s.Entry.unusable == nil {
		s.Entry.unusable = map[int]types.UID{}
	}
	s.Entry.unusable[s.Index] = uid
}

// SetRecreated notes that the step has recreated an object, which has that UID.
func (s Step) SetRecreated(uid types.UID) {
	s.Entry.mu.Lock()
	defer s.Entry.mu.Unlock()
	if s.Entry.recreatedAs == nil {
		s.Entry.recreatedAs = map[int]types.UID{}
	}
	s.Entry.recreatedAs[s.Index] = uid
}

// recreatedAs is the UID of the object that the step has recreated, "" if it is not known.
func (s Step) recreatedAs() types.UID {
	s.Entry.mu.Lock()
	defer s.Entry.mu.Unlock()
	return s.Entry.recreatedAs[s.Index]
}

// makesObject says whether the step makes an object.
func (s Step) makesObject() bool { return s.Verb == migration.Create || s.Verb == migration.Recreate }

// Recreated returns the object that a Recreate makes, nil if there was nothing to delete.
func (s Step) Recreated() *unstructured.Unstructured {
	if s.Object != nil {
		return s.Object.DeepCopy()
	}
	if deletion, ok := s.Deletion(); ok && deletion.Pre().Object != nil {
		return k8sutil.Restorable(deletion.Pre().Object)
	}
	return nil
}
