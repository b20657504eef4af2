package health

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var began = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

func atOf(h *Tracker, now time.Time) Health {
	is, _ := h.Record()
	return is.At(now)
}

func TestHealth(t *testing.T) {
	type step struct {
		at      time.Duration
		problem string
		tell    time.Duration
	}
	for _, tc := range []struct {
		reason string
		steps  []step
		at     time.Duration
		want   Health
	}{
		{"nothing", nil, 0, Health{}},
		{"a sink that works, which is told once", []step{{0, "", Soon}, {1, "", 0}}, 2, Health{Known: true}},
		{"a sink that refuses, which is told once", []step{{0, "no", Soon}, {time.Second, "no", 0}}, time.Hour, Health{Known: true, Problem: "no", Since: began}},
		{"another reason is told a little later", []step{{0, "no", Soon}, {time.Second, "never", Calm}}, 2 * time.Second, Health{Known: true, Problem: "never", Since: began}},
		{"it takes events again, and has refused one a moment ago", []step{{0, "no", Soon}, {time.Second, "", Calm}}, 3 * time.Second, Health{Known: true, Problem: "no", Since: began, Again: Calm - 3*time.Second}},
		{"it takes events, and has refused none for a while", []step{{0, "no", Soon}, {time.Second, "", Calm}}, Calm, Health{Known: true}},
		{"it refuses some of many, which is told at most once in a while", []step{{0, "no", Soon}, {1, "", Calm}, {2, "no", Soon}, {3, "", Calm}}, 4, Health{Known: true, Problem: "no", Since: began, Again: Calm - 2}},
		{"it worked for a while between two failures", []step{{0, "no", Soon}, {time.Second, "", Calm}, {time.Minute, "no", Soon}}, time.Hour, Health{Known: true, Problem: "no", Since: began.Add(time.Minute)}},
	} {
		var h Tracker
		for i, s := range tc.steps {
			if tell := h.Note(s.problem, began.Add(s.at)); tell != s.tell {
				t.Errorf("%s: step %d is told after %s, want %s", tc.reason, i, tell, s.tell)
			}
		}
		if diff := cmp.Diff(tc.want, atOf(&h, began.Add(tc.at))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestWith: two processes that deliver to one sink see what one process would see.
func TestWith(t *testing.T) {
	at := began.Add
	failing := func(since, last time.Duration) Record {
		return Record{Failed: at(last), Since: at(since), Problem: "no"}
	}
	blocked := failing(0, time.Second)
	blocked.Blocking, blocked.Blocked = Blocking{ID: "7", Since: began}, at(time.Second)
	for _, tc := range []struct {
		reason     string
		one, other Record
		want       Health
	}{
		{"nothing", Record{}, Record{}, Health{}},
		{"one has seen that it works", Record{Taken: began}, Record{}, Health{Known: true}},
		{"both fail: since the first of them", failing(time.Minute, 2*time.Minute), failing(0, 119*time.Second), Health{Known: true, Problem: "no", Since: began}},
		{"what one saw fail, the other one delivered later", failing(0, 0), Record{Taken: at(time.Minute)}, Health{Known: true}},
		{"what one saw fail long ago has worked meanwhile, and fails again", failing(0, time.Minute), func() Record {
			r := failing(time.Hour, time.Hour)
			r.Taken = at(30 * time.Minute)
			return r
		}(), Health{Known: true, Problem: "no", Since: at(time.Hour)}},
		{"one event stops the others", blocked, Record{}, Health{Known: true, Problem: "no", Since: began, Blocking: Blocking{ID: "7", Since: began}}},
		{"the other one has delivered that event, and then failed", blocked, func() Record {
			r := failing(20*time.Second, 20*time.Second)
			r.Taken = at(10 * time.Second)
			return r
		}(), Health{Known: true, Problem: "no", Since: at(20 * time.Second)}},
		{"the sink is asked again by the first of them", func() Record {
			r := failing(0, 1)
			r.Next = at(2 * time.Hour)
			return r
		}(), func() Record {
			r := failing(0, 1)
			r.Next = at(90 * time.Minute)
			return r
		}(), Health{Known: true, Problem: "no", Since: began, Next: at(90 * time.Minute)}},
	} {
		for _, is := range []Record{tc.one.With(tc.other), tc.other.With(tc.one)} {
			if diff := cmp.Diff(tc.want, is.At(began.Add(2*time.Hour))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		}
	}
}
