package suite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// Process is a job that runs, or has run.
type Process struct {
	*process.Process
	t testing.TB
}

// Run runs a job to its end.
func Run(t testing.TB, program process.Program) *Process {
	t.Helper()
	return &Process{process.Run(t, program), t}
}

// Start starts a job, as process.Start does.
func Start(t testing.TB, program process.Program) *Process {
	t.Helper()
	return &Process{process.Start(t, program), t}
}

// Report waits for the process to end, and reads its report, which must fit the
// exit code.
func (p *Process) Report() (report *migration.Report, code int) {
	p.t.Helper()
	code = p.Wait()
	report, err := readReport([]byte(p.Stdout()))
	if err != nil {
		p.t.Fatalf("%s: exit code %d: %v\n%s", p, code, err, p.Stderr())
	}
	// The signal, and that a failure was left as it was, are in the exit code only.
	switch {
	case report.Result == migration.Interrupted:
		report.Signal = code - migration.ExitSignal
	case report.Result == migration.FailedResult:
		report.Unrestored = code == migration.ExitPartlyRestored
	}
	if want := report.ExitCode(); want != code {
		p.t.Errorf("%s: exit code %d, but the report says %q, which is %d", p, code, report.Result, want)
	}
	return report, code
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

// outcome is how a run of the job ended.
type outcome struct {
	// code is the exit code, -1 if a signal ended the process.
	code int
	// report is nil if a signal ended the process.
	report *migration.Report
}

// start starts "<job> <command> <args>" on the cluster of the kubeconfig. The
// lease is short, for the run that comes after a killed one has to wait for its end.
func (s *Subject) start(t testing.TB, kubeconfig, command string, args ...string) *Process {
	t.Helper()
	all := []string{
		command, "--kubeconfig=" + kubeconfig, "--state-namespace=" + s.StateNamespace,
		"--output=json", "--log-format=json", "--lease-duration=1s",
	}
	return Start(t, process.Program{Binary: s.Binary, Args: append(append(all, s.Args...), args...)})
}

// outcome waits for the process to end, and returns how it did.
func (p *Process) outcome() outcome {
	p.t.Helper()
	out := outcome{code: p.Wait()}
	if out.code >= 0 {
		out.report, _ = p.Report()
	}
	return out
}
