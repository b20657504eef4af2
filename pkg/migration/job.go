package migration

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Job decides what is left to do. It reads through a Cluster, which refuses
// every write, and returns a Plan; the engine acts on it.
type Job interface {
	// Name is the job's name on the command line and in reports, a DNS label.
	Name() string
	// Doc describes the job for --help: one line, then its manual.
	Doc() (short, long string)
	// Plan reads the cluster and decides. It is called again when the cluster
	// may have changed (after waiting for the lock, or after a resumed rollback).
	// An error means that nothing could be decided and nothing was changed.
	Plan(ctx context.Context, c *Cluster, o PlanOptions) (*Plan, error)
	// Await returns what must hold after the change before the unit goes on;
	// none if the write itself is enough. It also gets changes of plans that other
	// processes made. Deleted objects are awaited by the engine itself.
	Await(ch *Change) []Condition
}

// PlanOptions say what a plan is for. The zero value is that of a run.
type PlanOptions struct {
	// Preview: the plan is only shown. The job need not wait for anything.
	Preview bool
}

// A job may also be, in the order in which the engine asks:
//
//	interface      the engine asks                                    a job that is none
//	Configurable   for settings, which become flags                   has no settings
//	Defaulter      for the command of its binary without arguments    runs
//	OnlyReader     whether a run never writes                         gets a lock and a journal
//	NamespaceLimiter  whether a run may be limited to a namespace     works on the whole cluster only
//	Accessor       what it asks of the API server                     has no generated Role
//	EditIgnorer    which fields webhooks and controllers own          every change of a field is an edit
//	Rechecker      again, right before a guarded change               must not have guarded changes
//	Orphaner       whether the dependents of a deleted object stay    leaves them to the garbage collector
//	Recreator      whether a recreated object can still be used       waits for its conditions only
//	Restorer       what must hold after an object was restored        is rolled back when the object exists
//	Protector      which objects carry live events                    deletes whatever it created
//	ProtectAdviser what to do about what stays                        tells the reason only
//	ProtectReader  what Protect reads, for the preflight              may lack a permission in a rollback
//	UndoGuard      whether an undo may begin now                      is undone at any time

// Rechecker is a job that is asked again right before a change is made that loses
// events or data if its reason is gone: a change whose Guard is set. Between the
// plan and the change lie waits, and kills.
type Rechecker interface {
	// Recheck says why change i of the unit must not be made now: nil if its reason
	// holds. The finding is mostly Deferred, and is reported; the change and those
	// that belong to it are not made. On an error they are not made either, and are
	// deferred with the error as the reason.
	//
	// It is asked after everything that the unit waits for before the change. If
	// it has to wait, it returns an AskLaterError. It reads through f and must not remember what
	// it read. The unit may
	// come from the journal of another process.
	Recheck(ctx context.Context, f Fresh, u *Unit, i int) (*Finding, error)
}

// OnlyReader is a job whose run never writes to the cluster. It has no journal, and takes no
// lock: its account needs neither.
type OnlyReader interface {
	// OnlyReads has no effect. A job that has this method is an OnlyReader.
	OnlyReads()
}

// NamespaceLimiter is a job whose run may be limited to one namespace: what it decides there
// needs nothing done elsewhere. It asks Cluster.LeavesOut for every namespace.
type NamespaceLimiter interface {
	// LimitsNamespace has no effect. A job that has this method is a NamespaceLimiter.
	LimitsNamespace()
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
	// Words are all values of a *string that takes one of a few, for completions.
	Words []string
}

// Defaulter is a job whose binary, called without a command, does something else
// than run.
type Defaulter interface {
	// DefaultCommand is "run", "plan" or "undo".
	DefaultCommand() string
}

// Protector is a job whose objects may come to carry live events. A rollback or an undo
// never deletes an object that carries live events.
type Protector interface {
	// Protect returns those of refs that must not be deleted, each with the reason. It reads
	// the cluster as it is now. On an error nothing is deleted.
	Protect(ctx context.Context, c *Cluster, refs []Ref) (map[Ref]string, error)
}

// ProtectAdviser is a Protector that knows what must be done before an object may be deleted that
// it protects.
type ProtectAdviser interface {
	// ProtectAdvice returns that for a reason that Protect gave; nothing if nothing must be done.
	ProtectAdvice(reason string) Advice
}

// ProtectReader is a Protector that says what Protect lists, so that a missing permission
// is found before the first write rather than in a rollback.
type ProtectReader interface {
	// ProtectReads returns the kinds and namespaces; names are ignored, and kinds that
	// are not served.
	ProtectReads() []Subject
}

// Replacement says which object the object of a change replaces, and how.
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

// Orphaner is a job that deletes owners and spares what they own: the pods of a
// StatefulSet that is about to be created again.
type Orphaner interface {
	// Orphans says whether the dependents of the object stay when it is deleted, by
	// the run or by its rollback.
	Orphans(ref Ref) bool
}

// Recreator is a job whose units recreate objects: see Recreate. The former object cannot be
// restored, only one like it can be created. So rolling back such a unit recreates the object, too,
// and a recreated object that turns out to be unusable is recreated once more.
type Recreator interface {
	Restorer
	// Assess says whether an object can be used that a unit recreates, or is about to
	// delete, as it is now.
	Assess(ctx context.Context, c *Cluster, live *unstructured.Unstructured) (Assessment, error)
	// Stuck returns the condition that the deletion which ch began goes on only
	// after a further update of the object; nil if that cannot be.
	Stuck(ch *Change) *Condition
}

// Assessment is whether an object can be used.
type Assessment struct {
	// Unusable is why the object cannot be used, and never will be; "" if it can be used now,
	// or may become usable.
	Unusable string
	// RemoveFinalizers are finalizers that their owner will never remove. The engine removes
	// them once the object is being deleted.
	RemoveFinalizers []string
}

// Restorer is a job whose restored objects must become something again before a
// rollback counts as complete (a ServiceInstance: provisioned).
type Restorer interface {
	// AwaitRestored returns what must hold after a deletion was undone.
	AwaitRestored(ch *Change) []Condition
}

// UndoGuard is a job whose changes may be undone only while the cluster is
// in a certain state: in the order in which jobs build upon each other.
type UndoGuard interface {
	// RefuseUndo returns the reasons not to undo the changes now, none if
	// they may be undone. It reads the cluster as it is now.
	RefuseUndo(ctx context.Context, c *Cluster, changes []Change) ([]Finding, error)
}
