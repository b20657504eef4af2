package migration

import (
	"time"
	"unique"
)

// Requests counts the API requests of a process. Reads are GETs (get, list,
// watch, discovery) and access reviews, which change nothing.
type Requests struct {
	Reads  int64 `json:"reads"`
	Writes int64 `json:"writes"`
}

// ChangeReport is what became of one change.
type ChangeReport struct {
	Verb       Verb    `json:"verb"`
	Kind       string  `json:"kind"`
	APIVersion string  `json:"apiVersion"`
	Namespace  string  `json:"namespace,omitempty"`
	Name       string  `json:"name"`
	Result     string  `json:"result,omitempty"`
	Seconds    float64 `json:"seconds,omitempty"`
	Message    string  `json:"message,omitempty"`
	// Reversible is set in a plan only.
	Reversible Reversible `json:"reversible,omitempty"`
	// Replaces is set in a plan only, by jobs that turn one kind into another.
	Replaces *Replacement `json:"replaces,omitempty"`

	// Change is what is reported on, for the one that prints a plan.
	Change *Change `json:"-"`
}

// ReportOf is the report of a change with that result.
func ReportOf(ch *Change, result string) ChangeReport {
	return ChangeReport{
		// Thousands of reports share one version.
		Verb: ch.Verb, Kind: ch.Ref.Kind, APIVersion: unique.Make(ch.Ref.GroupVersion().String()).Value(),
		Namespace: ch.Ref.Namespace, Name: ch.Ref.Name, Result: result, Change: ch,
	}
}

// Results of a change, in ChangeReport.Result.
const (
	ChangeDone        = "done"         // written, and what must hold after it holds
	ChangeUnchanged   = "unchanged"    // was so already
	ChangeFailed      = "failed"       // refused, or not ready in time
	ChangeNotStarted  = "not-started"  // the run ended before its turn
	ChangeLeft        = "left"         // not made: its reason did not hold any more, or another unit makes it
	ChangeRolledBack  = "rolled-back"  // was done and is undone
	ChangeNotRestored = "not-restored" // was done and could not be undone
	ChangeProtected   = "protected"    // was done and stays: it carries live events, or is a committed unit
	ChangeOpen        = "open"         // interrupted; the journal holds it
)

// Report is what a command prints, one object.
type Report struct {
	Job     string `json:"job"`
	Command string `json:"command"`
	Run     string `json:"run,omitempty"`
	Result  Result `json:"result"`
	Message string `json:"message"`
	// Server and Context say which cluster was meant, where the command knows it.
	Server    string         `json:"server,omitempty"`
	Context   string         `json:"context,omitempty"`
	StartedAt time.Time      `json:"startedAt"`
	Seconds   float64        `json:"seconds"`
	Requests  Requests       `json:"requests"`
	Changes   []ChangeReport `json:"changes"`
	Findings  []Finding      `json:"findings"`

	// Signal is the number of the signal that interrupted the run, 0 if none.
	Signal int `json:"-"`
	// Unrestored is set if a failed run left its changes in place, as asked.
	Unrestored bool `json:"-"`
}
