package model_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/synctest"

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
	for lane := range uint64(2) {
		t.Run(fmt.Sprintf("Lane%d", lane), func(t *testing.T) {
			t.Parallel()
			for seed := first + lane; seed < first+n; seed += 2 {
				s := play(t, seed)
				for _, problem := range s.Problems() {
					t.Errorf("seed %d: %s", seed, problem)
				}
				if n == 1 {
					t.Logf("seed %d:\n%s", seed, s.Story())
				}
			}
		})
	}
}
