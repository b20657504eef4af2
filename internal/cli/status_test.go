package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
)

var escape = regexp.MustCompile(`^\x1b\[\d*([A-Za-z])`)

// terminal is what a terminal makes of output: lines, each of which takes as many rows as
// it needs.
type terminal struct {
	width int
	// rewraps says whether lines are wrapped anew at another width; otherwise they are cut.
	rewraps bool
	lines   [][]rune
	at, col int
}

func newTerminal(width int) *terminal { return &terminal{width: width, lines: [][]rune{nil}} }

func (s *terminal) Write(b []byte) (int, error) {
	for output := string(b); output != ""; {
		if m := escape.FindStringSubmatch(output); m != nil {
			output = output[len(m[0]):]
			if m[1] == "J" {
				s.lines = append(s.lines[:s.at], s.lines[s.at][:s.col])
			}
			continue
		}
		c := []rune(output)[0]
		output = strings.TrimPrefix(output, string(c))
		switch c {
		case '\r': // to the start of the row
			s.col -= s.col % s.width
		case '\n':
			if s.at, s.col = s.at+1, 0; s.at == len(s.lines) {
				s.lines = append(s.lines, nil)
			}
		default:
			s.lines[s.at] = append(s.lines[s.at][:s.col], c)
			s.col++
		}
	}
	return len(b), nil
}

func (s *terminal) resize(width int) {
	s.width = width
	for i, line := range s.lines {
		if !s.rewraps && len(line) > width {
			s.lines[i] = line[:width]
		}
	}
}

func (s *terminal) shown() []string {
	var out []string
	for _, line := range s.lines {
		out = append(out, string(line))
	}
	return out
}

// drawn waits until the status line is drawn.
func drawn() {
	time.Sleep(refresh + time.Millisecond)
	synctest.Wait()
}

func TestStatusLine(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		width  int
		do     func(*StatusLine)
		want   string
	}{
		"OneJob": {
			reason: "done, what it waits for since when, what happened last, and the time", width: 120,
			do: func(s *StatusLine) {
				s.Job("trigger-sync").Start(200)
				s.Job("trigger-sync").Step(40, 7, engine.Wait{Object: "Broker shop/default", Since: time.Now().Add(-70 * time.Second)}, "created Trigger shop/orders")
			},
			want: "1m5s | trigger-sync 40/200, waits 1m10s for Broker shop/default and 6 more | created Trigger shop/orders",
		},
		"OneObject": {
			reason: "what it waits for is shown before what happened last, also where there is little room", width: 60,
			do: func(s *StatusLine) {
				s.Job("trigger-sync").Start(40)
				s.Job("trigger-sync").Step(12, 1, engine.Wait{Object: "Broker shop/default", Since: time.Now()}, "created Trigger shop/orders")
			},
			want: "1m5s | trigger-sync 12/40, waits 0s for Broker shop/defaul…",
		},
		"NothingIsWaiting": {
			reason: "a count of 0 says nothing", width: 100,
			do: func(s *StatusLine) {
				s.Job("trigger-sync").Start(200)
				s.Job("trigger-sync").Step(40, 0, engine.Wait{}, "")
			},
			want: "1m5s | trigger-sync 40/200",
		},
		"SeveralJobs": {
			reason: "all that work, in the order in which they began", width: 100,
			do: func(s *StatusLine) {
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
			do: func(s *StatusLine) {
				s.State("a", "running")
				s.Job("a").Start(3)
				s.Job("a").Step(3, 0, engine.Wait{}, "created Hat wardrobe/new")
				s.Job("a").Stop()
			},
			want: "1m5s | a running",
		},
		"AllEnded": {
			reason: "the next job is about to begin", width: 100,
			do:   func(s *StatusLine) { s.State("a", "running"); s.Ended("a") },
			want: "1m5s | 1 ended",
		},
		"Narrow": {
			reason: "what happened last is the first to be cut, and the last column stays free", width: 30,
			do: func(s *StatusLine) {
				s.Job("a").Start(9)
				s.Job("a").Step(4, 0, engine.Wait{}, "created Hat wardrobe/new")
			},
			want: "1m5s | a 4/9 | created Hat w…",
		},
		"VeryNarrow": {
			reason: "a width that nobody works at breaks nothing", width: 2,
			do:   func(s *StatusLine) { s.State("a", "running") },
			want: "…",
		},
		"NoWork": {
			reason: "steps without a start are not work", width: 100,
			do: func(s *StatusLine) {
				s.Job("a").Step(1, 1, engine.Wait{Object: "Broker shop/default", Since: time.Now()}, "nothing was started")
				s.Job("a").Start(0)
				s.Job("a").Stop()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				screen := newTerminal(tc.width)
				s := NewStatusLine(screen, true)
				s.width = func() int { return screen.width }
				time.Sleep(65 * time.Second)
				tc.do(s)
				drawn()
				if diff := cmp.Diff([]string{tc.want}, screen.shown()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				s.Close()
				tc.do(s)
				drawn()
				if diff := cmp.Diff([]string{""}, screen.shown()); diff != "" {
					t.Errorf("%s: after the end (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestStatusLineAtAnotherWidth: no piece of the status line stays on the screen, and no
// log line is lost, whatever the terminal does to lines that are too long for it.
func TestStatusLineAtAnotherWidth(t *testing.T) {
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
				screen := newTerminal(50)
				screen.rewraps = tc.rewraps
				s := NewStatusLine(screen, true)
				s.width = func() int { return screen.width }
				log := func(line string) {
					if _, err := s.Write([]byte(line + "\n")); err != nil {
						t.Fatal(err)
					}
				}
				resize := func(width int) {
					s.mu.Lock() // for the race detector: the line is drawn by another goroutine
					defer s.mu.Unlock()
					screen.resize(width)
				}
				s.Job("a").Start(9)
				s.Job("a").Step(4, 0, engine.Wait{}, "created Hat wardrobe/new in a large wardrobe")
				log("one")
				drawn()
				log("two")
				resize(tc.width)
				log("three")
				if diff := cmp.Diff([]string{"one", "two", "three", tc.want}, screen.shown()); diff != "" {
					t.Errorf("%s: with the next log line (-want +got):\n%s", tc.reason, diff)
				}
				resize(50)
				drawn()
				resize(tc.width)
				drawn()
				if diff := cmp.Diff([]string{"one", "two", "three", tc.want}, screen.shown()); diff != "" {
					t.Errorf("%s: with the next drawing (-want +got):\n%s", tc.reason, diff)
				}
				resize(20)
				s.Close()
				drawn()
				log("four")
				if diff := cmp.Diff([]string{"one", "two", "three", "four", ""}, screen.shown()); diff != "" {
					t.Errorf("%s: at the end (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestStatusLineWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := NewStatusLine(&out, false)
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
