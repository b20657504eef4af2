package jobmanager

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Job is what the manager runs.
type Job interface {
	// Name is a DNS label, the same everywhere.
	Name() string
	// Hooks say when the job belongs; one at least.
	Hooks() []Hook
	// Needed decides, by the cluster's state and never by a version, whether the
	// job has anything to do. It only reads.
	Needed(ctx context.Context, in Input) (Need, error)
	// Migration is the job's plan and its check, which the engine acts on.
	Migration() migration.Job
}

// Phase is before or after a deployment.
type Phase string

const (
	Pre  Phase = "pre"
	Post Phase = "post"
)

// Global is the component of hooks that belong to no component: they run always,
// before everything and after everything.
const Global = "global"

// Hook is one moment at which a job belongs.
type Hook struct {
	// Component is Global or the name of a component.
	Component string
	Phase     Phase
	// After names jobs of the same hook that must have ended before.
	After []string
}

// Before and After are hooks of a component; the names are those of jobs that
// come earlier in the same hook.
func Before(component string, after ...string) Hook { return Hook{component, Pre, after} }

// After is the hook after a component's deployment.
func After(component string, after ...string) Hook { return Hook{component, Post, after} }

// Input is what a job decides over.
type Input struct {
	// Cluster reads, and refuses every write.
	Cluster *migration.Cluster
	// Config of the run.
	Config Config
	// Components are those about to be processed, in order.
	Components []string
	// Deploys says whether they are deployed in this run, too. A run without a
	// deployment only does what the cluster is ready for.
	Deploys bool
	// Decide asks a job's own plan what is left to do.
	Decide func(ctx context.Context, job migration.Job) (*migration.Plan, error)
}

// Config is what jobs may know of the configuration.
type Config struct {
	StateNamespace    string
	ExcludeNamespaces []string
}

// Verdict is the short form of a Need.
type Verdict string

const (
	// Needed: there is something to do.
	Needed Verdict = "needed"
	// NotNeeded: nothing is left to do, or the job does not apply.
	NotNeeded Verdict = "not-needed"
	// Deferred: something is left that cannot be done yet.
	Deferred Verdict = "deferred"
	// Blocked: something is left, and a person has to mend something first.
	Blocked Verdict = "blocked"
)

// Need says whether a job has to run, and why.
type Need struct {
	Verdict Verdict
	// Reason is one clause.
	Reason string
	// Findings are those of the job's plan.
	Findings []migration.Finding
}

// What follows is optional and found by type assertion.

// Undoer is a job that can be taken back. Undo is called only when somebody asks
// for it by name.
type Undoer interface {
	Undo(ctx context.Context, e Engine) *migration.Report
}

// Requirement is an API without which the job cannot work.
type Requirement struct {
	Kind schema.GroupKind
	// IfMissing is NotNeeded or Blocked.
	IfMissing Verdict
	// Hint says where the kind comes from.
	Hint string
}

// Requirer is a job that requires APIs.
type Requirer interface {
	Requires() []Requirement
}

// Limited is a job with a limit of its own for its work, rollback aside.
type Limited interface {
	Timeout() time.Duration
}

// Deprecated is a job that must be gone from the program in a release.
type Deprecated interface {
	// GoneBy is a semantic version; "" if the job stays.
	GoneBy() string
}

// Engine is what the manager asks of *migration.Engine.
type Engine interface {
	Run(context.Context, migration.Job) *migration.Report
	Plan(context.Context, migration.Job) *migration.Report
	Undo(context.Context, migration.Job) *migration.Report
	Decide(context.Context, migration.Job) (*migration.Plan, error)
	OpenState(context.Context) (*engine.State, error)
	Cluster() *migration.Cluster
}

var _ Engine = (*engine.Engine)(nil)
