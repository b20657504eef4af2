package main

import (
	"testing"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestTheFrameHasTheCodesOfTheContract: programs that are not made with the library have the same
// exit codes.
func TestTheFrameHasTheCodesOfTheContract(t *testing.T) {
	for got, want := range map[int]int{
		frame.ExitOK: migration.ExitOK, frame.ExitFailed: migration.ExitFailed, frame.ExitUsage: migration.ExitUsage, frame.ExitLocked: migration.ExitLocked,
		frame.ExitFindings: migration.ExitFindings, frame.ExitNotChecked: migration.ExitNotChecked, frame.ExitSignal: migration.ExitSignal,
	} {
		if got != want {
			t.Errorf("%d, and in the contract %d", got, want)
		}
	}
}
