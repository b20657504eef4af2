package jobmanager

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Results of a job or component in addition to those of migration.Result.
const (
	// ResultNotNeeded: the job had nothing to do, and did not run.
	ResultNotNeeded migration.Result = "not-needed"
	// ResultNotStarted: what it comes after has failed, or the run was ended.
	ResultNotStarted migration.Result = "not-started"
	// ResultDeployed is a component's.
	ResultDeployed migration.Result = "deployed"
)

// JobReport is what became of a job in one hook.
type JobReport struct {
	Job       string  `json:"job"`
	Component string  `json:"component"`
	Phase     Phase   `json:"phase"`
	Verdict   Verdict `json:"verdict,omitempty"`
	Reason    string  `json:"reason,omitempty"`
	// NeededSeconds is how long it took to find out whether the job is needed,
	// Seconds the run itself: 0 if it was not.
	NeededSeconds float64             `json:"neededSeconds"`
	Seconds       float64             `json:"seconds"`
	Result        migration.Result    `json:"result"`
	Message       string              `json:"message,omitempty"`
	ExitCode      int                 `json:"exitCode"`
	Findings      []migration.Finding `json:"findings,omitempty"`
	// Report is the engine's, if the job ran.
	Report *migration.Report `json:"report,omitempty"`

	// Began and Ended are the times of whatever was done.
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
}

// ran fills in what the engine reports.
func (j *JobReport) ran(out *migration.Report) {
	j.Report, j.Result, j.Message, j.ExitCode, j.Findings = out, out.Result, out.Message, out.ExitCode(), out.Findings
}

// ComponentReport is what became of a deployment.
type ComponentReport struct {
	Component string           `json:"component"`
	Result    migration.Result `json:"result"`
	Seconds   float64          `json:"seconds"`
	Message   string           `json:"message,omitempty"`
	Began     time.Time        `json:"began,omitzero"`
	Ended     time.Time        `json:"ended,omitzero"`
}

// Report is how a run of several jobs ended.
type Report struct {
	Command string `json:"command"`
	// Server and Context say which cluster was meant, where the caller knows it.
	Server  string `json:"server,omitempty"`
	Context string `json:"context,omitempty"`
	// Namespace is the one that the jobs were limited to.
	Namespace string    `json:"namespace,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	// Seconds of all; NeededSeconds and RunSeconds are sums over the jobs, which
	// run side by side.
	Seconds       float64            `json:"seconds"`
	NeededSeconds float64            `json:"neededSeconds"`
	RunSeconds    float64            `json:"runSeconds"`
	ExitCode      int                `json:"exitCode"`
	Message       string             `json:"message"`
	Requests      migration.Requests `json:"requests"`
	Jobs          []JobReport        `json:"jobs"`
	Components    []ComponentReport  `json:"components,omitempty"`
}

// JobError says which job failed, and how.
type JobError struct {
	Job, Component string
	Phase          Phase
	Code           int
	Err            error
}

func (e *JobError) Error() string {
	if e.Phase == "" { // an undo belongs to no hook
		return fmt.Sprintf("job %s: %v", e.Job, e.Err)
	}
	return fmt.Sprintf("job %s (%s/%s): %v", e.Job, e.Component, e.Phase, e.Err)
}
func (e *JobError) Unwrap() error { return e.Err }

// ComponentError says that a component could not be deployed.
type ComponentError struct {
	Component string
	Err       error
}

func (e *ComponentError) Error() string {
	return fmt.Sprintf("cannot deploy component %s: %v", e.Component, e.Err)
}
func (e *ComponentError) Unwrap() error { return e.Err }

// UsageError says that the manager was asked for what it does not know.
type UsageError struct{ Problem string }

func (e *UsageError) Error() string { return e.Problem }

// Worst returns the exit code of several jobs: 3, 128+n, 124, 1, 4, 5, 2, 0.
func Worst(codes ...int) int {
	worst := migration.ExitOK
	for _, code := range codes {
		class := migration.ExitCodeOf(code)
		if class.Rank == 0 || class.Code != code && class.Code != migration.ExitSignal {
			code = migration.ExitFailed // an unknown code is a failure
		}
		if migration.ExitCodeOf(code).Rank > migration.ExitCodeOf(worst).Rank {
			worst = code
		}
	}
	return worst
}

// exitCode of whatever a run returns.
func exitCode(err error) int {
	var usage *UsageError
	var job *JobError
	var signal engine.SignalError
	switch {
	case err == nil:
		return migration.ExitOK
	case errors.As(err, &usage):
		return migration.ExitUsage
	case errors.As(err, &job):
		return job.Code
	case errors.As(err, &signal):
		return migration.ExitSignal + int(signal.Signal)
	default:
		return migration.ExitFailed
	}
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond)) / float64(time.Second)
}
