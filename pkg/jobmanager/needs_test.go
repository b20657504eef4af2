package jobmanager

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestJobsAreAskedTwoAtATime: at most two hold their lists, whatever their number.
func TestJobsAreAskedTwoAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, most, all atomic.Int32
		slow := func(context.Context) (*migration.Plan, error) {
			most.Store(max(most.Load(), asked.Add(1)))
			defer asked.Add(-1)
			all.Add(1)
			time.Sleep(time.Second)
			return &migration.Plan{}, nil
		}
		var jobs []Registration
		for i := range 7 {
			jobs = append(jobs, Registration{Job: &fakeJob{name: fmt.Sprintf("job-%d", i), plan: slow}, Hooks: []Hook{Before(Global)}})
		}
		m := newManager(t, &ledger{}, nil, jobs...)
		began := time.Now()
		if _, err := m.Needs(t.Context()); err != nil {
			t.Fatal(err)
		}
		if most.Load() != 2 || all.Load() != 7 || time.Since(began) != 4*time.Second {
			t.Errorf("%d of 7 jobs were asked, %d at once, within %s; want 7, 2, 4s", all.Load(), most.Load(), time.Since(began))
		}
	})
}

// TestJobsThatHangHoldUpNoOther: more jobs hang than may be asked at once, and
// the one after them is asked all the same.
func TestJobsThatHangHoldUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		hangs := func(ctx context.Context) (*migration.Plan, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		var after time.Duration
		began := time.Now()
		m := newManager(t, &ledger{}, nil,
			Registration{Job: &fakeJob{name: "hangs-1", plan: hangs}, Hooks: []Hook{Before(Global)}},
			Registration{Job: &fakeJob{name: "hangs-2", plan: hangs}, Hooks: []Hook{Before(Global)}},
			Registration{Job: &fakeJob{name: "answers", plan: func(context.Context) (*migration.Plan, error) {
				after = time.Since(began)
				return &migration.Plan{}, nil
			}}, Hooks: []Hook{Before(Global)}})
		needs, err := m.Needs(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if after != slotTime || needs[2].Err != nil || needs[2].Verdict != NotNeeded {
			t.Errorf("asked after %s: %+v; want %s, and not needed", after, needs[2], slotTime)
		}
		if needs[0].Err == nil || needs[1].Err == nil {
			t.Errorf("a job that hung has an answer: %+v", needs[:2])
		}
	})
}
