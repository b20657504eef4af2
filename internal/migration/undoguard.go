package migration

import "context"

// UndoGuard is a job whose changes may be taken back only while the cluster is
// in a certain state: in the order in which jobs build upon each other.
type UndoGuard interface {
	// RefuseUndo returns the reasons not to take back the changes now, none if
	// they may be. It reads the state of now.
	RefuseUndo(ctx context.Context, c *Cluster, changes []Change) ([]Finding, error)
}
