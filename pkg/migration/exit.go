package migration

import (
	"fmt"
	"slices"
)

// Exit codes of every job binary; docs/migration/runbook.md has what to do at each.
const (
	ExitOK             = 0
	ExitFailed         = 1
	ExitUsage          = 2
	ExitPartlyRestored = 3
	ExitRefused        = 4
	ExitLocked         = 5
	// ExitFindings and ExitNotChecked are of commands that only read: something is wrong or
	// left to do, and what they ask for could not be read.
	ExitFindings   = 6
	ExitNotChecked = 7
	ExitTimedOut   = 124
	// ExitSignal is added to the number of the signal that interrupted the run.
	ExitSignal = 128
)

// Result is how a command ended.
type Result string

const (
	Succeeded      Result = "succeeded"
	NothingToDo    Result = "nothing-to-do"
	DeferredResult Result = "deferred"
	FailedResult   Result = "failed"
	RolledBack     Result = "rolled-back"
	PartlyRestored Result = "partly-restored"
	Refused        Result = "refused"
	Locked         Result = "locked"
	TimedOut       Result = "timed-out"
	Interrupted    Result = "interrupted"
	Planned        Result = "planned"
)

// ExitCode is what an exit code means.
type ExitCode struct {
	Code int
	// Results of a run that end with the code, the most general one first.
	Results []Result
	// Meaning is one clause for the help and the documentation.
	Meaning string
	// Rank orders the codes of several jobs: the highest one counts. 0: no job ends with
	// the code.
	Rank int
}

// exitCodes are the contract of all programs. The help, the tables in the documentation and the
// chart's podFailurePolicy follow from them.
var exitCodes = []ExitCode{
	{ExitOK, []Result{Succeeded, NothingToDo, DeferredResult, Planned}, "done, or nothing to do, or the rest is deferred", 1},
	{ExitFailed, []Result{FailedResult, RolledBack}, "failed, and rolled back (or nothing had been changed); or work is deferred with --defer=fail", 5},
	{ExitUsage, nil, "the command line or the kubeconfig is wrong", 2},
	{ExitPartlyRestored, []Result{PartlyRestored}, "failed, and NOT everything was restored: the report names what is not", 8},
	{ExitRefused, []Result{Refused}, "refused before the first change: the report names why", 4},
	{ExitLocked, []Result{Locked}, "another run holds the lock", 3},
	{ExitFindings, nil, "a check found errors, or changes are left to make (only commands that read)", 0},
	{ExitNotChecked, nil, "could not read the cluster: no connection, or no permission (only commands that read)", 0},
	{ExitTimedOut, []Result{TimedOut}, "time limit reached: rolled back, or finished deletions stay (run again)", 6},
	{ExitSignal, []Result{Interrupted}, "interrupted by signal n; the next run continues", 7},
}

// ExitCodes returns all exit codes, in the order of their numbers.
func ExitCodes() []ExitCode { return slices.Clone(exitCodes) }

// ExitCodeOf returns what a number means: that of ExitSignal for the codes of signals, that of
// ExitFailed for unknown ones.
func ExitCodeOf(code int) ExitCode {
	for _, c := range exitCodes {
		if c.Code == code || c.Code == ExitSignal && code > ExitSignal {
			return c
		}
	}
	return ExitCodeOf(ExitFailed)
}

// String is the number, or 128+n.
func (c ExitCode) String() string {
	if c.Code == ExitSignal {
		return "128+n"
	}
	return fmt.Sprint(c.Code)
}

// ID is the name of the code in documents: "exit-4", or "exit-128n" for signals.
func (c ExitCode) ID() string {
	if c.Code == ExitSignal {
		return "exit-128n"
	}
	return fmt.Sprintf("exit-%d", c.Code)
}

// ExitCode returns the exit code of the report's result.
func (r *Report) ExitCode() int {
	if r.Unrestored {
		return ExitPartlyRestored
	}
	for _, c := range exitCodes {
		switch {
		case !slices.Contains(c.Results, r.Result):
		case c.Code == ExitSignal:
			return ExitSignal + r.Signal
		default:
			return c.Code
		}
	}
	return ExitFailed
}
