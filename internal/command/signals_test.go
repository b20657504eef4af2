package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/command/commandtest"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// childBehaviour makes the test binary a job, whose engine does as it says.
const childBehaviour = "CLI_TEST_CHILD"

func TestMain(m *testing.M) {
	if behaviour := os.Getenv(childBehaviour); behaviour != "" {
		os.Exit(child(behaviour))
	}
	os.Exit(m.Run())
}

// child is a job in a process of its own.
func child(behaviour string) int {
	p := &process{
		IO: frame.OS(), program: tools, job: commandtest.New(), isTerminal: frame.IsTerminal, inCluster: rest.InClusterConfig, terminationLog: os.DevNull + "/none",
	}
	p.newEngine = func(_ *rest.Config, o engine.Options) (runner, error) {
		return &fakeEngine{do: func(ctx context.Context, command string, _ migration.Job) *migration.Report {
			report := &migration.Report{Job: "test-job", Command: command, Result: migration.Succeeded}
			switch behaviour {
			case "stop":
				o.Log.Info("working")
				<-ctx.Done()
				report.Result, report.Message = migration.Interrupted, context.Cause(ctx).Error()
				var cause engine.SignalError
				if errors.As(context.Cause(ctx), &cause) {
					report.Signal = int(cause.Signal)
				}
			case "hang":
				o.Log.Info("working")
				select {}
			case "talk":
				// More than a pipe holds, were somebody to read it.
				for range 10_000 {
					o.Log.Info("working")
				}
			case "status", "status-hang":
				o.Progress.Start(10)
				o.Progress.Step(3, 2, engine.Wait{Object: "Broker shop/default", Since: time.Now()}, "created Hat wardrobe/new")
				for i := range 20 {
					o.Log.Info(fmt.Sprintf("line %d of the log", i))
				}
				// The test ends this once it has seen the status line.
				<-ctx.Done()
				for behaviour == "status-hang" {
					o.Progress.Step(3, 2, engine.Wait{Object: "Broker shop/default", Since: time.Now()}, "created Hat wardrobe/new")
					time.Sleep(time.Millisecond)
				}
				o.Progress.Stop()
				o.Log.Info("the end of the log")
			}
			return report
		}}, nil
	}
	return p.main()
}

// running is the test binary as a job.
type running struct {
	*exec.Cmd
	stdout, stderr io.ReadCloser
}

// command prepares the test binary to be a job. The shell prefix comes before
// it.
func command(t *testing.T, behaviour, prefix string, args ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	writeFile(t, file, kubeconfig)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", prefix + `exec "$0" "$@"`, self}, args...)...)
	cmd.Env = []string{childBehaviour + "=" + behaviour, "KUBECONFIG=" + file, "TERM=xterm"}
	return cmd
}

func start(t *testing.T, behaviour, prefix string, args ...string) *running {
	t.Helper()
	r := &running{Cmd: command(t, behaviour, prefix, args...)}
	var err error
	if r.stdout, err = r.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if r.stderr, err = r.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	launch(t, r.Cmd)
	return r
}

func launch(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A job that ignores its signals must not keep the tests waiting for ever.
	timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { timer.Stop() })
}

// until reads lines to the one that contains text.
func until(t *testing.T, lines *bufio.Scanner, text string) {
	t.Helper()
	var all []string
	for lines.Scan() {
		all = append(all, lines.Text())
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("no %q in:\n%s", text, strings.Join(all, "\n"))
}

func TestSignals(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		behaviour string
		prefix    string
		send      []syscall.Signal
		want      int
	}{
		"SIGTERM": {
			reason: "a node that is drained", behaviour: "stop",
			send: []syscall.Signal{syscall.SIGTERM}, want: 143,
		},
		"SIGINT": {
			reason: "Ctrl-C", behaviour: "stop",
			send: []syscall.Signal{syscall.SIGINT}, want: 130,
		},
		"SIGHUP": {
			reason: "the terminal is closed", behaviour: "stop",
			send: []syscall.Signal{syscall.SIGHUP}, want: 129,
		},
		"Nohup": {
			reason: "who used nohup meant it: the second signal ends the run", behaviour: "stop", prefix: `trap "" HUP; `,
			send: []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}, want: 143,
		},
		"Twice": {
			reason: "an engine that hangs is left at the second signal of the kind", behaviour: "hang",
			send: []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, want: 143,
		},
		"TwoKinds": {
			reason: "a signal of another kind is the first of its kind; the one that comes again is the one to report", behaviour: "hang",
			send: []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGINT}, want: 130,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "SIGHUP" && signal.Ignored(syscall.SIGHUP) {
				t.Skip("these tests were started with nohup, which the process inherits")
			}
			t.Parallel()
			job := start(t, tc.behaviour, tc.prefix, "--output=json")
			log := bufio.NewScanner(job.stderr)
			until(t, log, "working")
			sent := map[syscall.Signal]bool{}
			for _, s := range tc.send {
				if err := job.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
				// Signals of one kind that come together are one signal.
				if tc.prefix == "" && !sent[s] {
					until(t, log, "A second "+unix.SignalName(s))
				}
				sent[s] = true
			}
			var report migration.Report
			if err := json.NewDecoder(job.stdout).Decode(&report); err != nil {
				t.Errorf("%s: no report: %v", tc.reason, err)
			}
			if report.Result != migration.Interrupted {
				t.Errorf("%s: the result is %q", tc.reason, report.Result)
			}
			_, _ = io.Copy(io.Discard, job.stderr)
			err := job.Wait()
			if got := job.ProcessState.ExitCode(); got != tc.want {
				t.Errorf("%s: exit code %d (%v), want %d", tc.reason, got, err, tc.want)
			}
		})
	}
}

func TestReaderOfTheLogGoesAway(t *testing.T) {
	job := start(t, "talk", "", "--output=json")
	if err := job.stderr.Close(); err != nil {
		t.Fatal(err)
	}
	var report migration.Report
	if err := json.NewDecoder(job.stdout).Decode(&report); err != nil {
		t.Errorf("no report: %v", err)
	}
	if err := job.Wait(); err != nil || report.Result != migration.Succeeded {
		t.Errorf("a run must not die of SIGPIPE in the middle of its writes: %v, result %q", err, report.Result)
	}
}

func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, tc := range []struct {
		reason    string
		set, want int64
	}{
		{"no limit is set, ours is", math.MaxInt64, frame.MemoryLimit},
		{"GOMEMLIMIT is the user's choice", 100 << 20, 100 << 20},
	} {
		debug.SetMemoryLimit(tc.set)
		if code := Run(tools, commandtest.New(), IO{Args: []string{"version"}, Env: os.Getenv, Stdout: io.Discard, Stderr: io.Discard}); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		if got := debug.SetMemoryLimit(-1); got != tc.want {
			t.Errorf("%s: the limit is %d, want %d", tc.reason, got, tc.want)
		}
	}
}
