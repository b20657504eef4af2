//go:build slow

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestUpProcesses: with processes, each command that is shown can be pasted, and nothing is left in
// the end.
func TestUpProcesses(t *testing.T) {
	tried(t, options{dir: t.TempDir(), processes: true}, func(s *screen) {
		if state := s.paste(3); !strings.Contains(state, "Ready") {
			t.Errorf("the third command shows %s", state)
		}
	})
}

// TestUpEndsAtAnyMoment: Ctrl-C and make stop end it at any moment, also while something is being
// built, and leave neither processes nor files.
func TestUpEndsAtAnyMoment(t *testing.T) {
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // it is after 1970
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 10 {
		after := time.Duration(r.Float64() * float64(20*time.Second))
		build, stop := i%2 == 1, i%4 >= 2
		t.Run(strconv.Itoa(i), func(t *testing.T) { // its directory is in commands
			t.Logf("after %s; it builds %t, make stop %t", after, build, stop)
			// What the program starts has its environment.
			mark := filepath.Join(t.TempDir(), "mark")
			t.Setenv("EVENTMESH_TEST_MARK", mark)
			t.Setenv("TMPDIR", t.TempDir())
			if build {
				t.Setenv("EVENTMESH_CACHE", t.TempDir())
			}
			s := up(t, options{dir: t.TempDir(), processes: true})
			select {
			case <-time.After(after):
			case <-s.process.Exited():
				t.Fatalf("it has ended by itself:\n%s\n%s", s.text(), s.process.Stderr())
			}
			if stop {
				s.stop()
			} else {
				s.process.Signal(syscall.SIGINT)
			}
			if code := s.process.Wait(); code != 0 && !stop {
				t.Errorf("exit code %d\n%s", code, s.process.Stderr())
			}
			poll.Until(t, 30*time.Second, "all processes have ended", func(context.Context) error {
				if left := (&running{Dir: mark}).left(); len(left) > 0 {
					return fmt.Errorf("%v run", left)
				}
				return nil
			})
			for _, dir := range []string{s.o.dir, os.Getenv("TMPDIR")} {
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					t.Errorf("left in %s are %v, %v\n%s", dir, left, err, s.text())
				}
			}
		})
	}
}
