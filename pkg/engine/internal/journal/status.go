package journal

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
)

// Status is what is known of one change of an entry.
type Status struct {
	Entry *Entry
	Index int
}

// Pre is what the step found.
func (s Status) Pre() Preimage { return s.Entry.Pre[s.Index] }

// SetPods notes which pods a restart replaces, of one that decides when its turn comes.
func (s Status) SetPods(uids []types.UID) { s.Entry.Pre[s.Index].Pods = uids }

// locked reads or changes what is known of the step.
func (s Status) locked(do func(k *known)) {
	s.Entry.mu.Lock()
	defer s.Entry.mu.Unlock()
	do(&s.Entry.known[s.Index])
}

// State says what is known of the step.
func (s Status) State() (state StepState) {
	s.locked(func(k *known) { state = k.state })
	return state
}

// SetState keeps what is known of the step. One that is left stays so.
func (s Status) SetState(state StepState) {
	s.locked(func(k *known) {
		if k.state != StepLeft {
			k.state = state
		}
	})
}

// Beginning keeps the state of the step: begun from its first request on, unless all of them are
// known to have had no effect.
func (s Status) Beginning() write.Attempt {
	before := s.State()
	set := func(state StepState) { s.locked(func(k *known) { k.state = state }) }
	return write.Attempt{Sending: func() { set(StepBegun) }, Refused: func() { set(before) }}
}

// SetInspected keeps whether the cluster shows the step made, which an earlier process may have
// begun, and if not, whether it is certain that it was not.
func (s Status) SetInspected(made, certain bool) {
	s.locked(func(k *known) { k.made = made })
	if !made && certain {
		s.SetState(StepNotBegun)
	}
}

// IsShown says whether an earlier process may have begun the step, and the cluster shows it made.
func (s Status) IsShown() (made bool) {
	s.locked(func(k *known) { made = k.made })
	return made
}

// MadeOrBegun says whether the step has had an effect, as far as is known.
func (s Status) MadeOrBegun() bool {
	state := s.State()
	return s.IsShown() || state.IsDone() || state == StepBegun && !s.Entry.Read
}

// Effects are the objects that a controller made because of the step, as far as they are noted.
func (s Status) Effects() (effects []EffectMark) {
	s.locked(func(k *known) { effects = slices.Clone(k.effects) })
	return effects
}

// NoteEffect keeps what is known of an object in the place of a side effect of the step, unless
// something is known already: what is seen first is nearest to what a controller has made.
func (s Status) NoteEffect(mark EffectMark) {
	s.locked(func(k *known) {
		if !slices.ContainsFunc(k.effects, func(known EffectMark) bool { return known.Ref == mark.Ref }) {
			k.effects = append(slices.Clip(k.effects), mark)
		}
	})
}

// Unusable is the UID of an object that an earlier attempt recreated, and that the step deletes
// once more, "" if there is none.
func (s Status) Unusable() (uid types.UID) {
	s.locked(func(*known) { uid = s.Entry.unusable[s.Index] })
	return uid
}

// SetUnusable notes that the step deletes an object of that UID, which an earlier attempt
// recreated.
func (s Status) SetUnusable(uid types.UID) {
	s.locked(func(*known) { s.Entry.unusable = with(s.Entry.unusable, s.Index, uid) })
}

// SetRecreated notes that the step has recreated an object, which has that UID.
func (s Status) SetRecreated(uid types.UID) {
	s.locked(func(*known) { s.Entry.recreatedAs = with(s.Entry.recreatedAs, s.Index, uid) })
}

// recreatedAs is the UID of the object that the step has recreated, "" if it is not known.
func (s Status) recreatedAs() (uid types.UID) {
	s.locked(func(*known) { uid = s.Entry.recreatedAs[s.Index] })
	return uid
}

// with sets one UID in a map, which may be nil.
func with(uids map[int]types.UID, i int, uid types.UID) map[int]types.UID {
	if uids == nil {
		uids = map[int]types.UID{}
	}
	uids[i] = uid
	return uids
}

// found says whether the object that the step found has that UID.
func (s Status) found(uid types.UID) (is bool) {
	e, i := s.Entry, s.Index
	s.locked(func(*known) {
		is = e.Pre[i].Object != nil && e.Pre[i].Object.GetUID() == uid || e.unloaded != nil && e.unloaded[i] == uid
	})
	return is
}
