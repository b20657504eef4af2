package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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

// TestSharedReads: rechecks share reads, at most two a second of each key, that are at most
// 2 s old and not older than what their unit waited for.
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
		time.Sleep(FreshFor)
		if got := read(began); got != 2 {
			t.Errorf("read %d: it is 2 s old", got)
		}
		time.Sleep(time.Millisecond)
		if got := read(began); got != 3 {
			t.Errorf("read %d: it was older than 2 s", got)
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
