package migration

// Defaulter is a job whose binary, called without a command, does something else
// than run.
type Defaulter interface {
	// DefaultCommand is "run", "plan" or "undo".
	DefaultCommand() string
}
