package execute

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestNextBatch(t *testing.T) {
	unit := func(n int) migration.Unit { return migration.Unit{Changes: make([]migration.Change, n)} }
	for name, tc := range map[string]struct {
		reason string
		sizes  []int
		want   []int
	}{
		"One":   {"few units are one batch", []int{1, 1, 1}, []int{3}},
		"Full":  {"a batch covers up to 100 changes", []int{60, 40, 1}, []int{2, 1}},
		"Large": {"a unit is never split", []int{150, 1}, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var units []migration.Unit
			for _, n := range tc.sizes {
				units = append(units, unit(n))
			}
			var got []int
			for len(units) > 0 {
				got = append(got, len(nextBatch(&units)))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// told is a Progress that writes down what is waited for.
type told struct{ steps []string }

func (*told) Start(int) {}
func (*told) Stop()     {}

func (p *told) Step(_, waiting int, longest Wait, _ string) {
	p.steps = append(p.steps, fmt.Sprintf("%d: %s", waiting, longest.Object))
}

// TestWaitsNameTheLongest: the progress and the log name the object that has been waited for the
// longest time, and why.
func TestWaitsNameTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		progress := &told{}
		x := &Executor{actor: &act.Actor{Log: zap.New(core)}, progress: progress}
		for i, name := range []string{"slow", "quick"} {
			go func() {
				time.Sleep(time.Duration(i) * time.Second)
				_ = x.waits(enginetest.Ref("Thing", name), func(tell func(string)) error {
					tell("no image")
					time.Sleep([]time.Duration{70 * time.Second, 40 * time.Second}[i])
					return nil
				})
			}()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{"1: Thing shop/slow", "1: Thing shop/slow", "2: Thing shop/slow", "2: Thing shop/slow", "1: Thing shop/slow", "0: "}, progress.steps); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
		var got []string
		for _, line := range logs.All() {
			got = append(got, fmt.Sprint(line.Message, " ", line.ContextMap()["object"], " ", line.ContextMap()["reason"], " ", line.ContextMap()["seconds"]))
		}
		if diff := cmp.Diff([]string{"still waiting Thing shop/slow no image 5", "still waiting Thing shop/slow no image 35", "still waiting Thing shop/slow no image 65"}, got); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}
