// Package readiness finds out when all Subscriptions are ready on a backend. It reports this to the
// operator once, which then opens the backend. The status of each Subscription has the same
// information, but a thousand writes of statuses take longer than the rest of a switch.
package readiness

import (
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// holdFor is how long statuses wait for the next Subscription to become ready, until all are. What
// they say meanwhile is true, of what served before.
const holdFor = 10 * time.Second

// spacing is the time between two statuses after that. Nobody waits for them, and the pods of a
// switch start beside them.
const spacing = 50 * time.Millisecond

// Subscription is one as it was looked at. Another one of the same name has another UID.
type Subscription struct {
	types.NamespacedName
	UID        types.UID
	Generation int64
	// Out: nobody waits for it. It is invalid, is being deleted, or was taken out of the switch.
	Out bool
}

// verdict is what was found of a Subscription.
type verdict struct {
	uid        types.UID
	generation int64
	out        bool
	ready      backend.Set
}

func (v verdict) on(b operatorv1alpha1.BackendType) bool { return v.out || v.ready.Has(b) }

// Tally is what was found of all Subscriptions in one round, which begins when what serves changes.
// The zero value is ready for use, and its methods can be called at the same time.
type Tally struct {
	mu    sync.Mutex
	round int
	// last is when a Subscription became ready, or the round began.
	last    time.Time
	serving backend.Set
	found   map[types.NamespacedName]verdict
	// left are those that are not ready, by backend; nil before all are known.
	left map[operatorv1alpha1.BackendType]map[types.NamespacedName]bool
	// said is what the operator was told, and toldAll when that was all.
	said    backend.Versions
	toldAll time.Time
}

// Begin begins a round, of which nothing is known, and returns its number.
func (t *Tally) Begin(serving backend.Set) (round int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round++
	t.last, t.serving = time.Now(), slices.Clone(serving)
	t.found, t.left, t.said = map[types.NamespacedName]verdict{}, nil, nil
	return t.round
}

// Expect says which Subscriptions there are in a round. It returns whether Complete may have news:
// on some backend all are ready that are known, and the operator was not told.
func (t *Tally) Expect(round int, all []types.NamespacedName) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if round != t.round {
		return false
	}
	t.left = map[operatorv1alpha1.BackendType]map[types.NamespacedName]bool{}
	for _, b := range t.serving {
		t.left[b] = map[types.NamespacedName]bool{}
		for _, key := range all {
			if !t.found[key].on(b) {
				t.left[b][key] = true
			}
		}
	}
	return t.due()
}

// Found takes what was found of a Subscription in a round: on which backends it is ready. What was
// found in an earlier round says nothing. It returns what Expect returns.
func (t *Tally) Found(round int, s Subscription, ready map[operatorv1alpha1.BackendType]bool) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if round != t.round {
		return false
	}
	v := verdict{uid: s.UID, generation: s.Generation, out: s.Out}
	for b, is := range ready {
		if is {
			v.ready = append(v.ready, b)
		}
	}
	if before := t.found[s.NamespacedName]; slices.ContainsFunc(t.serving, func(b operatorv1alpha1.BackendType) bool { return v.on(b) && !before.on(b) }) {
		t.last = time.Now()
	}
	t.found[s.NamespacedName] = v
	for b, left := range t.left {
		if v.on(b) {
			delete(left, s.NamespacedName)
		} else {
			left[s.NamespacedName] = true
		}
	}
	return t.due()
}

// Forget forgets a Subscription that does not exist any more. It returns what Expect returns.
func (t *Tally) Forget(key types.NamespacedName) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.found, key)
	for _, left := range t.left {
		delete(left, key)
	}
	return t.due()
}

// Complete returns the backends on which all of these Subscriptions are ready, each with the
// resource version up to which they are all that there are.
func (t *Tally) Complete(round int, all []Subscription, version string) (complete backend.Versions) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if round != t.round || t.left == nil {
		return nil
	}
	complete = backend.Versions{}
	for _, b := range t.serving {
		missing := slices.ContainsFunc(all, func(s Subscription) bool {
			v := t.found[s.NamespacedName]
			return !s.Out && (v.uid != s.UID || v.generation != s.Generation || !v.on(b))
		})
		if !missing {
			complete[b] = version
		}
	}
	return complete
}

// Due tells whether Complete may have news, or Expect was not called yet.
func (t *Tally) Due() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left == nil && len(t.serving) > 0 || t.due()
}

func (t *Tally) due() bool {
	return slices.ContainsFunc(t.serving, func(b operatorv1alpha1.BackendType) bool {
		return t.left != nil && len(t.left[b]) == 0 && t.said[b] == ""
	})
}

// Said takes what the operator was told in a round. It returns whether that is news for statuses
// that were held.
func (t *Tally) Said(round int, complete backend.Versions) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if round != t.round {
		return false
	}
	held := !t.all()
	t.said = complete
	if held && t.all() {
		t.toldAll = time.Now()
		return true
	}
	return false
}

// Claims are what the operator was told in this round.
func (t *Tally) Claims() backend.Versions {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.said)
}

// all tells whether all was said.
func (t *Tally) all() bool {
	return !slices.ContainsFunc(t.serving, func(b operatorv1alpha1.BackendType) bool { return t.said[b] == "" })
}

// Hold is how long the status of a Subscription waits that says no more than that it is ready.
func (t *Tally) Hold(key types.NamespacedName, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.all() {
		return max(0, holdFor-now.Sub(t.last))
	}
	if len(t.found) == 0 {
		return 0
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(key.String())) // it never fails
	return max(0, spacing*time.Duration(hash.Sum32()%uint32(len(t.found)))-now.Sub(t.toldAll))
}
