// Back-offs of client-go and of ours are jittered by the process' own source of
// numbers. Only a seeded one makes a schedule the same each time.
//go:debug randseednop=0

package model_test

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/kyma-project/eventmesh-migration/test/model"
)

// number reads a variable, which is for whoever looks for a fault.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	given := os.Getenv(name)
	if given == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func play(t *testing.T, seed uint64) *model.Schedule {
	// Goroutines that become ready at the same time must do so in the same order.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	hung := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("seed %d hangs: something waits that is no timer", seed)) })
	defer hung.Stop()
	rand.Seed(int64(seed)) //nolint:staticcheck // see above; what is seeded is not ours
	utilrand.Seed(int64(seed))
	s := model.NewSchedule(seed, "")
	s.Blunt = os.Getenv("MODEL_BLUNT") != ""
	synctest.Test(t, func(t *testing.T) {
		if err := s.Play(context.Background(), model.Memory(seed)); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	})
	return s
}

// TestModelSchedules plays random schedules: see model.Schedule. MODEL_SEED=n plays one
// of them and tells its story, MODEL_SCHEDULES=n is how many are played.
func TestModelSchedules(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of schedules")
	}
	if os.Getenv("MODEL_SEED") != "" {
		schedules(t, number(t, "MODEL_SEED", 0), 1)
		return
	}
	schedules(t, 1, number(t, "MODEL_SCHEDULES", 500))
}

func schedules(t *testing.T, first, n uint64) {
	t.Helper()
	for seed := first; seed < first+n; seed++ {
		began := time.Now()
		s := play(t, seed)
		if took := time.Since(began); took > time.Second {
			t.Logf("seed %d took %s, %d writes", seed, took, s.Writes())
		}
		for _, problem := range s.Problems() {
			t.Errorf("seed %d: %s", seed, problem)
		}
		if dir := os.Getenv("MODEL_STORIES"); dir != "" {
			_ = os.WriteFile(fmt.Sprintf("%s/%d", dir, seed), []byte(s.Story()), 0o600)
		}
		if n == 1 {
			t.Logf("seed %d:\n%s", seed, s.Story())
		}
	}
}
