package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestLastSharedRead: the pause between two reads ends early, once, when all units that have
// not ended wait for them. Fails on the commit before: the read is made after 0.5 s.
func TestLastSharedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSharedReads(func() *migration.Cluster { return nil })
		read := func() {
			_, err := migration.Shared(t.Context(), NewFresh(s, nil, time.Now()), "key", func(context.Context, *migration.Cluster) (int, error) { return 0, nil })
			if err != nil {
				t.Error(err)
			}
		}
		s.Counted(2, 0)
		read()
		began := time.Now()
		go func() {
			time.Sleep(freshEvery / 5)
			s.Counted(-1, 0) // the other unit has ended
		}()
		if read(); time.Since(began) != freshEvery/5 {
			t.Errorf("the last read began after %s, and nothing else was under way after %s", time.Since(began), freshEvery/5)
		}
		began = time.Now()
		if read(); time.Since(began) != freshEvery {
			t.Errorf("one more read began after %s: only one is early", time.Since(began))
		}
	})
}

// TestSharedReads: rechecks share reads, at most two a second of each key, that ended at most
// 1 s ago and are not older than what their unit waited for.
func TestSharedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSharedReads(func() *migration.Cluster { return nil })
		reads := 0
		read := func(after time.Time) int {
			got, err := migration.Shared(t.Context(), NewFresh(s, nil, after), "key", func(context.Context, *migration.Cluster) (int, error) {
				reads++
				return reads, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if first, second := read(time.Time{}), read(time.Time{}); first != 1 || second != 1 {
			t.Error("two at once share one read")
		}
		began := time.Now()
		if got := read(began); got != 2 || time.Since(began) != freshEvery {
			t.Errorf("read %d after %s: one that waited until now needs one of after that, and not before 0.5 s passed", got, time.Since(began))
		}
		time.Sleep(sharedFor)
		if got := read(began); got != 2 {
			t.Errorf("read %d: it is 1 s old", got)
		}
		time.Sleep(time.Millisecond)
		if got := read(began); got != 3 {
			t.Errorf("read %d: it was older than 1 s", got)
		}
		failing := errors.New("no")
		_, err := migration.Shared(t.Context(), NewFresh(s, nil, time.Time{}), "other", func(context.Context, *migration.Cluster) (int, error) { return 0, failing })
		if !errors.Is(err, failing) {
			t.Errorf("got %v", err)
		}
		// What the end of one recheck cut off is no answer for another.
		ctx, cancel := context.WithCancel(t.Context())
		_, _ = migration.Shared(ctx, NewFresh(s, nil, time.Time{}), "cut", func(ctx context.Context, _ *migration.Cluster) (int, error) { cancel(); return 0, ctx.Err() })
		got, err := migration.Shared(t.Context(), NewFresh(s, nil, time.Time{}), "cut", func(context.Context, *migration.Cluster) (int, error) { return 7, nil })
		if got != 7 || err != nil {
			t.Errorf("got %d, %v", got, err)
		}
	})
}

// TestSlowSharedReads: all who ask while a read is under way get it, however long it takes. On
// f3299ef a read of 2.2 s was too old for the next one, so that each of them made its own.
func TestSlowSharedReads(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		cost   time.Duration
		// every is how long after one another 24 rechecks ask.
		every time.Duration
		reads int
	}{
		"AtOnce":     {"one read serves all", 2200 * time.Millisecond, 0, 1},
		"Meanwhile":  {"also those who come while it goes on", 2200 * time.Millisecond, 90 * time.Millisecond, 1},
		"Afterwards": {"and for a second after it", 2200 * time.Millisecond, 200 * time.Millisecond, 2},
		"Quick":      {"a quick one serves for a second", 50 * time.Millisecond, 100 * time.Millisecond, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewSharedReads(func() *migration.Cluster { return nil })
				reads := 0
				for range 24 {
					go func() {
						f := NewFresh(s, nil, time.Time{})
						_, err := f.Shared(t.Context(), "key", func(context.Context, *migration.Cluster) (any, error) {
							reads++
							time.Sleep(tc.cost)
							return reads, nil
						})
						if a := f.Answer(); err != nil || !a.Holds() || a.Cost() > tc.cost {
							t.Errorf("%s: an answer that cost %s does not hold when it comes: %v", tc.reason, a.Cost(), err)
						}
					}()
					time.Sleep(tc.every)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if reads != tc.reads {
					t.Errorf("%s: %d reads", tc.reason, reads)
				}
			})
		})
	}
}

// TestAnswer holds how old an answer is. On f3299ef it was as old as the moment when it was given,
// or when the job was asked.
func TestAnswer(t *testing.T) {
	type ages struct {
		Age, Cost time.Duration
	}
	const s = time.Second
	for name, tc := range map[string]struct {
		reason string
		asks   func(ctx context.Context, f *Fresh)
		// before is what another recheck does.
		before func(ctx context.Context, f *Fresh)
		want   ages
	}{
		"Nothing": {"that of the question", func(context.Context, *Fresh) { time.Sleep(s) }, nil, ages{s, s}},
		"Read": {"that of the read", func(ctx context.Context, f *Fresh) {
			time.Sleep(s)
			shares(ctx, f, "a", 2*s)
		}, nil, ages{2 * s, 2 * s}},
		"First": {"that of the first read", func(ctx context.Context, f *Fresh) {
			shares(ctx, f, "a", s)
			shares(ctx, f, "b", 2*s)
		}, nil, ages{3 * s, 3 * s}},
		"Shared": {
			"that of a read of others, which costs nothing once it is there", func(ctx context.Context, f *Fresh) { shares(ctx, f, "a", s) },
			func(ctx context.Context, f *Fresh) {
				shares(ctx, f, "a", s)
				time.Sleep(s / 2)
			}, ages{s + s/2, s},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := NewSharedReads(func() *migration.Cluster { return nil })
				if tc.before != nil {
					tc.before(t.Context(), NewFresh(shared, nil, time.Time{}))
				}
				f := NewFresh(shared, nil, time.Time{})
				tc.asks(t.Context(), f)
				a := f.Answer()
				if diff := cmp.Diff(tc.want, ages{time.Since(a.Read), a.Cost()}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func shares(ctx context.Context, f *Fresh, key string, cost time.Duration) {
	_, _ = f.Shared(ctx, key, func(context.Context, *migration.Cluster) (any, error) { time.Sleep(cost); return 0, nil })
}
