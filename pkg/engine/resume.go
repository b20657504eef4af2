package engine

import (
	"errors"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
)

// stays says whether a run failed because of a deletion that a rollback could not restore.
func stays(err error) bool {
	failed, ok := errors.AsType[*wait.Error](err)
	return ok && failed.Stays
}
