package journal

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// known is what is known of one change of an entry.
type known struct {
	state StepState
	// made: an earlier process may have begun it, and the cluster shows it made.
	made bool
	// hash of the object as the change left it, for undo; "" if it is not known.
	hash string
	// effects are the objects that a controller made because of the change, as they
	// were when the unit ended.
	effects []EffectMark
}

// StepState is what is known of one change.
type StepState byte

const (
	// StepUnknown: an earlier process may have begun it. There is no proof.
	StepUnknown StepState = '?'
	// StepNotBegun: no request was sent for it.
	StepNotBegun StepState = '-'
	// StepBegun: a request was sent for it.
	StepBegun StepState = 'b'
	// StepDone: it was made, and what must hold after it held.
	StepDone StepState = 'd'
	// StepLeft: it is not made, since its reason does not hold any more, or since
	// another unit makes it.
	StepLeft StepState = 'l'
	// StepFound: what it was to do was found done by a process that resumed it. There is
	// no proof that this job did it.
	StepFound StepState = 'f'
	// StepReverting: a rollback has begun to undo it.
	StepReverting StepState = 'r'
	// StepRevertingUnproven: the same, and there is no proof that this job did it.
	StepRevertingUnproven StepState = 'R'
)

// IsDone says whether nothing is left to do for the change.
func (s StepState) IsDone() bool { return s == StepDone || s == StepFound }

// IsProven says whether it is known that this job made the change, if it was made.
func (s StepState) IsProven() bool {
	return s != StepUnknown && s != StepFound && s != StepRevertingUnproven
}

// IsReverting says whether a rollback has begun to undo the change.
func (s StepState) IsReverting() bool { return s == StepReverting || s == StepRevertingUnproven }

// Begun says whether a request was, or may have been, sent for the change.
func (s StepState) Begun() bool { return s != StepNotBegun && s != StepLeft }

// Result is what a report says of a change that is done.
func (s StepState) Result() string {
	if s == StepFound {
		return migration.ChangeUnchanged
	}
	return migration.ChangeDone
}

// EffectMark tells one object that a controller made.
type EffectMark struct {
	Ref  migration.Ref `json:"ref"`
	UID  types.UID     `json:"uid"`
	Hash string        `json:"hash"`
	// Theirs: it was there before the change was made, and is none of its effects. Without UID:
	// nobody could tell.
	Theirs bool `json:"theirs,omitempty"`
}

// Marks is what the journal keeps of an entry in addition to the entry itself: format 2.
type Marks struct {
	// Steps has one byte for each change, a StepState.
	Steps  string   `json:"steps"`
	Hashes []string `json:"hashes,omitempty"`
	// Effects by change.
	Effects map[int][]EffectMark `json:"effects,omitempty"`
	// Unusable objects by change: see Entry.unusable.
	Unusable map[int]types.UID `json:"unusable,omitempty"`
	// RecreatedAs by change: see Entry.recreatedAs.
	RecreatedAs map[int]types.UID `json:"recreatedAs,omitempty"`
	// Kept: see Entry.Kept.
	Kept bool `json:"kept,omitempty"`
}

// Marks are what is known of the units of the chunk, by their sequence number.
func (c *Chunk) Marks() map[int]Marks {
	all := map[int]Marks{}
	for _, e := range c.entries {
		if m, known := e.marks(); known {
			all[e.Seq] = m
		}
	}
	return all
}

// marks is what is known of the entry, false if there is nothing to mark.
func (e *Entry) marks() (m Marks, worth bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m = Marks{Unusable: maps.Clone(e.unusable), RecreatedAs: maps.Clone(e.recreatedAs), Kept: e.Kept}
	for i := range e.known {
		k := &e.known[i]
		m.Steps += string(rune(k.state))
		if k.hash != "" && m.Hashes == nil {
			m.Hashes = make([]string, len(e.known))
		}
		if k.hash != "" {
			m.Hashes[i] = k.hash
		}
		if len(k.effects) > 0 {
			if m.Effects == nil {
				m.Effects = map[int][]EffectMark{}
			}
			m.Effects[i] = k.effects
		}
	}
	return m, len(e.unusable) > 0 || slices.ContainsFunc(e.known, func(k known) bool { return k.state != StepNotBegun && k.state != StepUnknown })
}

func (e *Entry) readMarks(m Marks) error {
	if len(m.Steps) != len(e.Unit.Changes) {
		return fmt.Errorf("the number of marks of unit %d is %d, want %d", e.Seq, len(m.Steps), len(e.Unit.Changes))
	}
	e.Done, e.unusable, e.recreatedAs, e.Kept = true, m.Unusable, m.RecreatedAs, m.Kept
	for i := range e.known {
		k := &e.known[i]
		k.state = StepState(m.Steps[i])
		if len(m.Hashes) > i {
			k.hash = m.Hashes[i]
		}
		k.effects = m.Effects[i]
		if k.state != StepDone && k.state != StepLeft && k.state != StepFound {
			e.Done = false
		}
		if k.state == StepNotBegun && e.mayHaveBegun() {
			k.state = StepUnknown // it was so when the mark was written
		}
	}
	return nil
}

// mayHaveBegun says whether an earlier process may have begun the entry.
func (e *Entry) mayHaveBegun() bool { return e.Seq < e.Chunk.begun }
