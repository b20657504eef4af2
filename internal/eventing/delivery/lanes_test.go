package delivery

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

// TestLanes: how many events of each type are posted, when no sink answers, and what becomes of the
// next one.
func TestLanes(t *testing.T) {
	type offer struct {
		at        time.Duration // from the beginning
		eventType string
		posts     int     // of 20 that are offered
		then      verdict // the next one, which came at this time
	}
	for _, tc := range []struct {
		reason       string
		slots, types int
		offers       []offer
	}{
		{"one type has all", 10, 1, []offer{{0, "a", 10, waits}, {time.Hour, "a", 0, waits}}},
		{"in order", 1, 3, []offer{{0, "a", 1, waits}, {time.Hour, "b", 0, waits}}},
		{"another type finds a slot at once", 10, 2, []offer{{0, "a", 9, waits}, {0, "b", 1, waits}}},
		{"each of a few types does", 10, 4, []offer{{0, "a", 7, waits}, {0, "b", 1, waits}, {0, "c", 1, waits}, {0, "d", 1, waits}}},
		{"more types than there can be reserved slots for", 4, 9, []offer{{0, "a", 3, waits}, {0, "b", 1, waits}, {0, "c", 0, waits}}},
		{"two slots", 2, 2, []offer{{0, "a", 1, waits}, {0, "b", 1, waits}}},
		{"a type that hangs makes way", 10, 2, []offer{{0, "a", 9, waits}, {slowAfter, "a", 0, steps}, {slowAfter, "b", 1, waits}}},
	} {
		l, began := newLanes(tc.slots, tc.types), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
		for _, o := range tc.offers {
			got, now := offer{at: o.at, eventType: o.eventType}, began.Add(o.at)
			for range 20 {
				m := nats.NewMsg("kyma.shop." + o.eventType)
				if got.then = l.take(m, now, now); got.then != posts {
					break
				}
				got.posts++
			}
			if diff := cmp.Diff(o, got, cmp.AllowUnexported(offer{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		}
	}
}

// TestLanesAfterAnswers: a type whose answers come late has a part of the slots until one comes
// soon.
func TestLanesAfterAnswers(t *testing.T) {
	l, now := newLanes(10, 2), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	fill := func() (posted []*nats.Msg) {
		for range 20 {
			if m := nats.NewMsg("kyma.shop.a"); l.take(m, now, now) == posts {
				posted = append(posted, m)
			}
		}
		return posted
	}
	answer := func(after time.Duration, all []*nats.Msg) {
		now = now.Add(after)
		for _, m := range all {
			l.release(m, now)
		}
	}
	var got []int
	for _, after := range []time.Duration{slowAfter, slowAfter, time.Millisecond, time.Millisecond} {
		posted := fill()
		got = append(got, len(posted))
		answer(after, posted)
	}
	if diff := cmp.Diff([]int{9, 5, 5, 9}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if l.used != 0 || len(l.of) != 0 {
		t.Errorf("after the last answer, %d slots are used, and %d types are known", l.used, len(l.of))
	}
}

// TestReach: a sink that cannot be reached is asked with one event at a time, and not all the time.
func TestReach(t *testing.T) {
	down, refused := outcome{code: "error", problem: "in whatever words", unreachable: true}, outcome{code: "503", problem: "the sink answers 503"}
	now := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		reason   string
		outcomes []outcome
		posted   int
		after    time.Duration
		want     bool
	}{
		{"nothing yet", nil, 9, 0, true},
		{"two failures", []outcome{down, down}, 9, 0, true},
		{"three", []outcome{down, down, down}, 0, 0, false},
		{"a second later", []outcome{down, down, down}, 0, time.Second, true},
		{"a second later, while one is posted", []outcome{down, down, down}, 1, time.Second, false},
		{"many failures", []outcome{down, down, down, down, down, down, down, down}, 0, longestPause - 1, false},
		{"the longest pause", []outcome{down, down, down, down, down, down, down, down}, 0, longestPause, true},
		{"an answer, whatever it is", []outcome{down, down, down, refused}, 9, 0, true},
	} {
		var r reach
		for _, o := range tc.outcomes {
			r.note(o, now)
		}
		if got := r.may(tc.posted, now.Add(tc.after)); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
		}
	}
}

// TestLanesWhileNATSIsSlow: a type whose sink answers at once has all that it may have, however
// long NATS takes to store that.
func TestLanesWhileNATSIsSlow(t *testing.T) {
	l, now := newLanes(10, 2), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	var posted []*nats.Msg
	take := func(n int) {
		t.Helper()
		for i := range n {
			m := nats.NewMsg("kyma.shop.a")
			if v := l.take(m, now, now); v != posts {
				t.Fatalf("event %d of %d: %v", i, n, v)
			}
			posted = append(posted, m)
		}
	}
	take(6)
	for _, m := range posted {
		l.answered(m, now.Add(time.Millisecond))
	}
	now = now.Add(2 * slowAfter)
	take(3)
	for _, m := range posted {
		l.release(m, now)
	}
	take(9)
}
