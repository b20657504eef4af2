package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestBudget: who takes all it gets leaves as much as it has, and who waits is called when there is
// room for it.
func TestBudget(t *testing.T) {
	b := &Budget{total: 100}
	var called sync.Map
	shares := map[string]*Share{}
	for _, name := range []string{"greedy", "second", "modest"} {
		shares[name] = NewShare(b, func() { called.Store(name, true) })
	}
	fill := func(name string) (taken int) {
		for shares[name].Take(10) {
			taken += 10
		}
		return taken
	}
	got := []int{fill("greedy"), fill("second"), fill("modest")}
	if diff := cmp.Diff([]int{50, 30, 10}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if shares["modest"].Take(40) {
		t.Error("more is taken than is there")
	}
	shares["greedy"].Give(20)
	for _, name := range []string{"second", "modest"} {
		shares[name].End()
	}
	if b.used != 70 || b.most != 90 || len(b.waiting) > 1 {
		t.Errorf("used %d, at most %d, %d wait", b.used, b.most, len(b.waiting))
	}
	if none := (&Share{}); !none.Take(1<<60) || none.Bound(1) != 0 {
		t.Error("without a budget there is a bound")
	}
}

// TestCalled: those are called for whom there is room, in the order in which they wait, and whoever
// is left waits on.
func TestCalled(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		b := &Budget{total: 100, used: random.Int64N(101), least: 1}
		for range random.IntN(6) {
			s := NewShare(b, nil)
			s.used, s.needs, s.waits = random.Int64N(30), 1+random.Int64N(40), true
			b.waiting = append(b.waiting, s)
		}
		var want, left []*Share
		free := b.total - b.used
		for _, s := range b.waiting {
			if s.needs <= free && s.used+s.needs <= b.total-b.used {
				free -= s.needs
				want = append(want, s)
			} else {
				left = append(left, s)
			}
		}
		if got := b.call(); !slices.Equal(got, want) || !slices.Equal(b.waiting, left) {
			t.Fatalf("%d are called and %d wait, want %d and %d", len(got), len(b.waiting), len(want), len(left))
		}
		for _, s := range b.waiting {
			if s.needs < b.least || !s.waits {
				t.Fatalf("one waits for %d, and none for less than %d", s.needs, b.least)
			}
		}
	}
}

// manyConnections counts how often it is closed.
type manyConnections struct{ is, closed atomic.Int64 }

func (c *manyConnections) Open() int64 { return c.is.Load() }
func (c *manyConnections) CloseIdle()  { c.closed.Add(1) }

// TestIdleConnections: idle connections are closed when events need their bytes, and not before.
// What is being posted has bytes for its connection.
func TestIdleConnections(t *testing.T) {
	const posts = 20 // that take as much as 36 connections
	for _, tc := range []struct {
		reason string
		open   int64
		posts  int
		events int64 // in connections
		closed bool
	}{
		{"few are open", uncounted, 0, 100, false},
		{"there is room for all", uncounted + 40, 0, 60, false},
		{"events need the room", uncounted + 41, 0, 60, true},
		{"they are in use", uncounted + 50, posts, 30, false},
		{"some are in use", uncounted + 55, posts, 30, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			kept := &manyConnections{}
			kept.is.Store(tc.open)
			b := &Budget{total: 100 * perConnection, connections: kept}
			posting, others := NewShare(b, nil), NewShare(b, nil)
			for range tc.posts {
				if !posting.TakePost(0) {
					t.Fatal("there is no room")
				}
			}
			if !others.Take(tc.events * perConnection) {
				t.Fatal("there is no room")
			}
			poll.Until(t, time.Minute, "idle connections are closed or not", func(context.Context) error {
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.closing {
					return errors.New("they are being closed")
				}
				return nil
			})
			if is := kept.closed.Load() > 0; is != tc.closed {
				t.Errorf("closed: %t, want %t", is, tc.closed)
			}
		})
	}
}

func TestLargestBudget(t *testing.T) {
	if b := New(1<<40, nil); b.total != Most {
		t.Errorf("a large container has a budget of %d, want %d", b.total, Most)
	}
}
