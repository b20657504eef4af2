package migration

import (
	"testing"
)

func TestExitCodes(t *testing.T) {
	for result, want := range map[Result]int{
		Succeeded: 0, NothingToDo: 0, DeferredResult: 0, Planned: 0, FailedResult: 1, RolledBack: 1,
		PartlyRestored: 3, Refused: 4, Locked: 5, TimedOut: 124,
	} {
		if got := (&Report{Result: result}).ExitCode(); got != want {
			t.Errorf("%s: got %d, want %d", result, got, want)
		}
	}
	if got := (&Report{Result: Interrupted, Signal: 15}).ExitCode(); got != 143 {
		t.Errorf("SIGTERM: got %d, want 143", got)
	}
	if got := (&Report{Result: FailedResult, Unrestored: true}).ExitCode(); got != 3 {
		t.Errorf("failed and kept: got %d, want 3", got)
	}
}

// TestExitCodeOf: what a number means to whoever meets it in a log.
func TestExitCodeOf(t *testing.T) {
	for code, want := range map[int]int{0: ExitOK, 3: ExitPartlyRestored, 128: ExitSignal, 143: ExitSignal, 124: ExitTimedOut, 77: ExitFailed} {
		if got := ExitCodeOf(code).Code; got != want {
			t.Errorf("%d: got that of %d, want %d", code, got, want)
		}
	}
}
