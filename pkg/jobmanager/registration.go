package jobmanager

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Registration is one job, with all that a Manager knows of it. Job and Hooks are
// required.
type Registration struct {
	// Job plans what is left to do, and the engine does it. Its name is a DNS label, and
	// no other job of the manager has it.
	Job migration.Job

	// Hooks are the moments at which the job belongs, one at least.
	Hooks []Hook

	// Requires are APIs without which the job cannot work. The first one that the API
	// server does not serve decides; the job itself is then not asked.
	Requires []Requirement

	// SkipIf takes the job out of a run for which it returns a reason: one clause for a
	// person. It is for what a plan cannot know, such as that the job was not asked for.
	// It only reads. Nil: the job's plan alone decides.
	SkipIf func(ctx context.Context, in Input) (reason string, err error)

	// Timeout limits the job's work; its rollback has Options.Migration.RollbackTimeout
	// on top of it. 0: Options.Migration.Timeout.
	Timeout time.Duration

	// RemoveBy is the release, such as 1.13.0, in which the job must be removed from the
	// program: Manager.Lint fails from then on. "": the job is not temporary.
	RemoveBy string

	// NoUndo says why nothing can be undone, for a job that changes nothing. "": Undo
	// reverts the newest run of the job.
	NoUndo string
}

// Name is the job's.
func (r *Registration) Name() string { return r.Job.Name() }

// hook returns the job's hook, false if it does not belong there.
func (r *Registration) hook(component string, phase Phase) (Hook, bool) {
	for _, h := range r.Hooks {
		if h.Component == component && h.Phase == phase {
			return h, true
		}
	}
	return Hook{}, false
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
	// After names jobs of the same hook that must have ended before. Jobs of a hook that
	// do not wait for each other run side by side.
	After []string
}

// Before is the hook before a component's deployment; after names jobs that come
// earlier in it.
func Before(component string, after ...string) Hook { return Hook{component, Pre, after} }

// After is the hook after a component's deployment; after names jobs that come
// earlier in it.
func After(component string, after ...string) Hook { return Hook{component, Post, after} }

// String is "component/phase".
func (h Hook) String() string { return h.Component + "/" + string(h.Phase) }

// Requirement is an API without which the job cannot work.
type Requirement struct {
	Kind schema.GroupKind
	// IfMissing is NotNeeded or Blocked.
	IfMissing Verdict
	// Hint says where the kind comes from.
	Hint string
}

// Input is what Registration.SkipIf decides over.
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
}

// Config is what jobs may know of the configuration.
type Config struct {
	StateNamespace    string
	ExcludeNamespaces []string
}
