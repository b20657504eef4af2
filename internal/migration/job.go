package migration

import (
	"context"
)

// Job decides what is left to do. It reads through a Cluster, which refuses
// every write, and returns a Plan; the engine acts on it.
type Job interface {
	// Name is the job's name on the command line and in reports, a DNS label.
	Name() string
	// Doc describes the job for --help: one line, then its manual.
	Doc() (short, long string)
	// Plan reads the cluster and decides. It is called again when the cluster
	// may have moved (after waiting for the lock, or after a resumed rollback).
	// An error means that nothing could be decided and nothing was changed.
	Plan(ctx context.Context, c *Cluster) (*Plan, error)
	// Await returns what must hold after the change before the unit goes on;
	// none if the write itself is enough. It gets changes of plans that other
	// processes made, too. Deleted objects are awaited by the engine itself.
	Await(ch *Change) []Condition
}

// Rechecker is a job that is asked again right before a change is made that loses
// events or data if its reason is gone: a change whose Guard is set. Between the
// plan and the change lie waits, and kills.
type Rechecker interface {
	// Recheck says why change i of the unit must not be made now: nil if its reason
	// holds. The finding is mostly Deferred, and is reported; the change and those
	// that belong to it are not made. On an error they are not made either, and are
	// deferred with the error as the reason.
	//
	// It is asked after everything that the unit waits for before the change. It may
	// wait itself. It reads through f and must not remember what it read. The unit may
	// come from the journal of another process.
	Recheck(ctx context.Context, f Fresh, u *Unit, i int) (*Finding, error)
}

// OnlyReader is a job whose run never writes to the cluster. It has no journal, and takes no
// lock: its account needs neither.
type OnlyReader interface {
	// OnlyReads has no effect; having it says so.
	OnlyReads()
}

// Configurable is a job with settings of its own.
type Configurable interface {
	// Settings are bound to flags by the command.
	Settings() []Setting
	// Validate reports every bad value at once.
	Validate() error
}

// Setting is one option of a job. The command turns it into a flag.
type Setting struct {
	// Name is the flag without dashes.
	Name string
	// Usage is the help text.
	Usage string
	// Value points to the field, which holds the default: *string, *bool,
	// *int, *time.Duration or *[]string.
	Value any
}

// Keeper is a job whose objects may come to carry live events. What carries
// them is never taken away by a rollback or an undo.
type Keeper interface {
	// Keep returns, for those of refs that must stay, the reason. It reads the
	// state of now. On an error nothing is taken away.
	Keep(ctx context.Context, c *Cluster, refs []Ref) (map[Ref]string, error)
}

// KeepReader is a Keeper that says what Keep lists, so that a missing permission
// is found before the first write rather than in a rollback.
type KeepReader interface {
	// KeepReads returns the kinds and namespaces; names are ignored.
	KeepReads() []Ref
}

// Explainer is a job whose changes replace one kind of object by another, and
// that can tell a person which field becomes which.
type Explainer interface {
	// Explain is asked by a dry run only. Nil if there is nothing to tell.
	Explain(ch *Change) *Replacement
}

// Replacement says what the object of a change takes the place of, and how.
type Replacement struct {
	// Of is "Kind namespace/name".
	Of string `json:"of"`
	// Fields in the order in which they are best read.
	Fields []FieldMapping `json:"fields"`
}

// FieldMapping is how one field, "path: value", becomes another. An empty From
// is a field that is new, an empty To one that has no equivalent.
type FieldMapping struct {
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// EditIgnorer is a job that knows annotations, labels and fields which webhooks and
// controllers own: changing them is no edit of the object.
type EditIgnorer interface {
	// IgnoredKeys returns label and annotation keys, and fields of spec with IgnoredSpec
	// before each.
	IgnoredKeys() []string
}

// IgnoredSpec begins an ignored key that is a field of spec.
const IgnoredSpec = "spec."

// IgnoredSpecs are the ignored keys for fields of spec.
func IgnoredSpecs(fields ...string) []string {
	keys := make([]string, len(fields))
	for i, field := range fields {
		keys[i] = IgnoredSpec + field
	}
	return keys
}
