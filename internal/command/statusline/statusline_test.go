package statusline

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/test/pty"
)

// drawn waits until the status line is drawn.
func drawn() {
	time.Sleep(frame.StatusRefresh + time.Millisecond)
	synctest.Wait()
}

func TestLine(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		width  int
		do     func(*Line)
		want   string
	}{
		"OneJob": {
			reason: "done, what it waits for since when, what happened last, and the time", width: 120,
			do: func(s *Line) {
				s.Job("trigger-sync").Start(200)
				s.Job("trigger-sync").Step(40, 7, engine.Wait{Object: "Broker shop/default", Since: time.Now().Add(-70 * time.Second)}, "created Trigger shop/orders")
			},
			want: "1m5s | trigger-sync 40/200, waits 1m10s for Broker shop/default and 6 more | created Trigger shop/orders",
		},
		"Why": {
			reason: "after 5 seconds, why the longest is waited for, without what is secret in it", width: 160,
			do: func(s *Line) {
				s.Job("trigger-sync").Start(200)
				s.Job("trigger-sync").Step(40, 7, engine.Wait{Object: "Broker shop/default", Since: time.Now().Add(-5 * time.Second), Reason: "no image at http://me:pw@x/?t=1"}, "")
			},
			want: "1m5s | trigger-sync 40/200, waits 5s for Broker shop/default and 6 more: no image at http://x/?t=…",
		},
		"Lock": {
			reason: "who waits for another run does not run", width: 160,
			do: func(s *Line) {
				s.State("trigger-sync", "running")
				s.State("grow-pvc", "running")
				for _, job := range []string{"trigger-sync", "grow-pvc"} {
					s.Job(job).(engine.LockProgress).WaitsForLock("laptop_1")
				}
				s.Job("grow-pvc").(engine.LockProgress).WaitsForLock("")
			},
			want: "1m5s | trigger-sync waits for the lock of laptop_1 | grow-pvc running",
		},
		"OneObject": {
			reason: "what it waits for is shown before what happened last, also where there is little room", width: 60,
			do: func(s *Line) {
				s.Job("trigger-sync").Start(40)
				s.Job("trigger-sync").Step(12, 1, engine.Wait{Object: "Broker shop/default", Since: time.Now(), Reason: "it is early"}, "created Trigger shop/orders")
			},
			want: "1m5s | trigger-sync 12/40, waits 0s for Broker shop/defaul…",
		},
		"NothingIsWaiting": {
			reason: "a count of 0 says nothing", width: 100,
			do: func(s *Line) {
				s.Job("trigger-sync").Start(200)
				s.Job("trigger-sync").Step(40, 0, engine.Wait{}, "")
			},
			want: "1m5s | trigger-sync 40/200",
		},
		"SeveralJobs": {
			reason: "all that work, in the order in which they began", width: 100,
			do: func(s *Line) {
				s.State("httpsource-sync", "running")
				s.State("grow-pvc", "checking")
				s.Job("httpsource-sync").Start(3)
				s.State("first", "checking")
				s.Ended("first")
			},
			want: "1m5s | 1 ended | httpsource-sync 0/3 | grow-pvc checking",
		},
		"EngineStopped": {
			reason: "the job goes on after its engine has stopped", width: 100,
			do: func(s *Line) {
				s.State("a", "running")
				s.Job("a").Start(3)
				s.Job("a").Step(3, 0, engine.Wait{}, "created Hat wardrobe/new")
				s.Job("a").Stop()
			},
			want: "1m5s | a running",
		},
		"AllEnded": {
			reason: "the next job is about to begin", width: 100,
			do:   func(s *Line) { s.State("a", "running"); s.Ended("a") },
			want: "1m5s | 1 ended",
		},
		"Narrow": {
			reason: "what happened last is the first to be cut, and the last column stays free", width: 30,
			do: func(s *Line) {
				s.Job("a").Start(9)
				s.Job("a").Step(4, 0, engine.Wait{}, "created Hat wardrobe/new")
			},
			want: "1m5s | a 4/9 | created Hat w…",
		},
		"VeryNarrow": {
			reason: "a width that nobody works at breaks nothing", width: 2,
			do:   func(s *Line) { s.State("a", "running") },
			want: "…",
		},
		"NoWork": {
			reason: "steps without a start are not work", width: 100,
			do: func(s *Line) {
				s.Job("a").Step(1, 1, engine.Wait{Object: "Broker shop/default", Since: time.Now()}, "nothing was started")
				s.Job("a").Start(0)
				s.Job("a").Stop()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				screen := pty.NewScreen(tc.width)
				s := New(screen, true)
				s.Width = func() int { return screen.Width }
				time.Sleep(65 * time.Second)
				tc.do(s)
				drawn()
				if diff := cmp.Diff([]string{tc.want}, screen.Shown()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				s.Close()
				tc.do(s)
				drawn()
				if diff := cmp.Diff([]string{""}, screen.Shown()); diff != "" {
					t.Errorf("%s: after the end (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestAtAnotherWidth: no piece of the status line stays on the screen, and no
// log line is lost, whatever the terminal does to lines that are too long for it.
func TestAtAnotherWidth(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		rewraps bool
		width   int
		want    string
	}{
		"NarrowerRewraps": {"most terminals wrap the line, which then takes two rows", true, 30, "0s | a 4/9 | created Hat war…"},
		"NarrowerCuts":    {"xterm cuts it", false, 30, "0s | a 4/9 | created Hat war…"},
		"Wider":           {"what was cut is shown", true, 100, "0s | a 4/9 | created Hat wardrobe/new in a large wardrobe"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				screen := pty.NewScreen(50)
				screen.Rewraps = tc.rewraps
				s := New(screen, true)
				s.Width = func() int { return screen.Width }
				log := func(line string) {
					if _, err := s.Write([]byte(line + "\n")); err != nil {
						t.Fatal(err)
					}
				}
				resize := func(width int) {
					// For the race detector: the line is drawn by another goroutine.
					s.Note(func() { screen.Resize(width) })
				}
				s.Job("a").Start(9)
				s.Job("a").Step(4, 0, engine.Wait{}, "created Hat wardrobe/new in a large wardrobe")
				log("one")
				drawn()
				log("two")
				resize(tc.width)
				log("three")
				if diff := cmp.Diff([]string{"one", "two", "three", tc.want}, screen.Shown()); diff != "" {
					t.Errorf("%s: with the next log line (-want +got):\n%s", tc.reason, diff)
				}
				resize(50)
				drawn()
				resize(tc.width)
				drawn()
				if diff := cmp.Diff([]string{"one", "two", "three", tc.want}, screen.Shown()); diff != "" {
					t.Errorf("%s: with the next drawing (-want +got):\n%s", tc.reason, diff)
				}
				resize(20)
				s.Close()
				drawn()
				log("four")
				if diff := cmp.Diff([]string{"one", "two", "three", "four", ""}, screen.Shown()); diff != "" {
					t.Errorf("%s: at the end (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := New(&out, false)
		s.State("a", "running")
		s.Job("a").Start(9)
		s.Job("a").Step(4, 0, engine.Wait{}, "created Hat wardrobe/new")
		drawn()
		if _, err := s.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
		s.Ended("a")
		s.Close()
		if diff := cmp.Diff("a line\n", out.String()); diff != "" {
			t.Errorf("a file gets log lines only (-want +got):\n%s", diff)
		}
	})
}
