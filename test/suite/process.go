package suite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// runLimit is how long a process may take before it counts as hanging.
const runLimit = 3 * time.Minute

// process is one run of the job.
type process struct {
	t              testing.TB
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	exited         chan struct{}
	began          time.Time
}

// outcome is how a process ended.
type outcome struct {
	// code is the exit code, -1 if a signal ended the process.
	code int
	// report is nil if a signal ended the process.
	report *migration.Report
	// took is the whole life of the process.
	took time.Duration
}

// start starts "<job> <command> <args>" on the cluster of the kubeconfig. The
// lease is short, for whoever comes after a killed run has to wait for its end.
func (s *Subject) start(t testing.TB, kubeconfig, command string, args ...string) *process {
	t.Helper()
	all := []string{
		command, "--kubeconfig=" + kubeconfig, "--state-namespace=" + s.StateNamespace,
		"--output=json", "--log-format=json", "--lease-duration=1s",
	}
	all = append(append(all, s.Args...), args...)
	p := &process{t: t, cmd: exec.Command(s.Binary, all...), exited: make(chan struct{}), began: time.Now()}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	// Nothing of this environment may lead it to another cluster.
	p.cmd.Env = []string{"HOME=" + t.TempDir(), "GORACE=atexit_sleep_ms=0"}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v", s.Name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s %s: %s. Its log:\n%s\nIts report:\n%s", s.Name, strings.Join(all, " "), p.cmd.ProcessState, &p.stderr, &p.stdout)
		}
	})
	return p
}

// kill ends the process with SIGKILL, and returns when it is dead and waited for.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("cannot send %s: %v", s, err)
	}
}

// await waits for something to happen while the process runs, and fails the test
// if the process ends before.
func (p *process) await(happened <-chan struct{}, what string) {
	p.t.Helper()
	select {
	case <-happened:
	case <-p.exited:
		p.t.Fatalf("the process ended (%s) before %s", p.cmd.ProcessState, what)
	case <-time.After(runLimit):
		p.t.Fatalf("%s did not happen within %s", what, runLimit)
	}
}

// wait waits for the process to end by itself, and reads its report.
func (p *process) wait() outcome {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(runLimit):
		// The Go runtime answers with the stacks of all goroutines, on stderr.
		p.signal(syscall.SIGQUIT)
		select {
		case <-p.exited:
		case <-time.After(10 * time.Second):
		}
		p.kill()
		p.t.Fatalf("the process did not end within %s", runLimit)
	}
	out := outcome{code: p.cmd.ProcessState.ExitCode(), took: time.Since(p.began)}
	if log := p.stderr.String(); strings.Contains(log, "WARNING: DATA RACE") || strings.Contains(log, "\npanic: ") {
		p.t.Error("a data race or a panic: see the log")
	}
	if out.code < 0 {
		return out
	}
	report, err := readReport(p.stdout.Bytes())
	if err != nil {
		p.t.Fatalf("exit code %d: %v", out.code, err)
	}
	out.report = report
	// The signal is in the exit code only.
	if report.Result == migration.Interrupted {
		report.Signal = out.code - migration.ExitSignal
	}
	if code := report.ExitCode(); code != out.code {
		p.t.Errorf("exit code %d, but the report says %q, which is %d", out.code, report.Result, code)
	}
	return out
}

// readReport reads a report as strictly as its contract is: one object, nothing
// else.
func readReport(raw []byte) (*migration.Report, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var report migration.Report
	if err := decoder.Decode(&report); err != nil {
		return nil, fmt.Errorf("stdout is no report: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("stdout holds more than the report")
	}
	return &report, nil
}
