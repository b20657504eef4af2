// Package registry is the one table of this project's jobs: All. Everything that has to
// know them follows from it: the jobs of eventmesh-migrate and of installers, and, by
// "make charts", what the charts run when, with which flags and which Roles, their
// values, and the tables in the documentation.
//
// A new job is a package in internal/migration/jobs, a main.go in cmd, and an entry here.
package registry

import (
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/adoptbyhelm"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/growpvc"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/httpsource"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/purge"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/scaledown"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/serviceinstance"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
)

// Release is the version of Kyma that this source belongs to. A job that must be
// removed by then fails the tests.
const Release = "1.11.0"

// Components whose upgrade the migration belongs to.
const (
	Core                 = "core"
	EventBus             = "event-bus"
	EventSources         = "event-sources"
	ApplicationConnector = "application-connector"
	// ClusterEssentials is upgraded before all of them. Only its chart has a hook.
	ClusterEssentials = "cluster-essentials"
)

// Components are those that an installer deploys with jobs around them, in its order.
func Components() []string {
	return []string{Core, EventBus, EventSources, ApplicationConnector}
}

// Entry is one job, with all that the project says of it.
type Entry struct {
	// Registration is for eventmesh-migrate and for installers. Its hooks and their order
	// are those of the charts, too.
	jobmanager.Registration
	// OnlyWith is the flag of eventmesh-migrate without which the job does not run, "" if
	// it always does.
	OnlyWith string
	// Chart says how the charts run the job, nil if they do not.
	Chart *Chart
	// Tested says, for the README, beside what the job was run.
	Tested string
}

// Chart is how the charts run a job.
type Chart struct {
	// Timeout and Rollback are the defaults of jobs.<job>.timeoutSeconds and
	// rollbackTimeoutSeconds. Rollback is 0 for a job that writes nothing.
	Timeout, Rollback time.Duration
	// TimeoutDoc documents the value.
	TimeoutDoc string
	// Flags are what a hook adds to those of the job, by its String.
	Flags map[string][]string
	// UndoneByRollback: before "helm rollback", the job is undone, the last one first.
	UndoneByRollback bool
	// Gate replaces the hooks of the job.
	Gate *Gate
}

// Defaults of the charts' values, which are added to the limits of a job: lockWaitSeconds,
// image.pullReserveSeconds and terminationGracePeriodSeconds.
const (
	LockWait    = time.Minute
	PullReserve = 5 * time.Minute
	GracePeriod = time.Minute
)

// HelmTimeout is what Helm's --timeout must be at least for a hook whose job has this limit.
func (c *Chart) HelmTimeout(timeout time.Duration) time.Duration {
	return LockWait + timeout + c.Rollback + PullReserve + GracePeriod
}

// Gate is a plan that stops an upgrade, so that it cannot be left out.
type Gate struct {
	// Before is the component.
	Before string
	Flags  []string
}

// All returns the table, with jobs that have their default settings. Each call creates
// new ones, because a run changes their settings.
func All() []Entry {
	grow, adopt, remains := growpvc.New(), adoptbyhelm.New(), purge.New()
	beforeConnector := jobmanager.Before(ApplicationConnector).String()
	afterConnector := jobmanager.After(ApplicationConnector).String()
	complete := []string{"--defer=fail"}
	return []Entry{
		{
			Registration: jobmanager.Registration{
				Job:    grow,
				Hooks:  []jobmanager.Hook{jobmanager.Before(jobmanager.Global)},
				SkipIf: unless(grow.Asked, "no StatefulSet is named: --grow-pvc.statefulset"),
			},
			OnlyWith: "--grow-pvc.statefulset",
			Tested:   "the real controller of StatefulSets, with a stand-in for the storage",
		},
		{
			Registration: jobmanager.Registration{
				Job:    adopt,
				Hooks:  []jobmanager.Hook{jobmanager.Before(jobmanager.Global)},
				SkipIf: unless(adopt.Asked, "no object is named: --adopt-by-helm.objects"),
			},
			OnlyWith: "--adopt-by-helm.objects",
			Tested:   "a real API server, without Helm",
		},
		{
			Registration: jobmanager.Registration{
				Job: httpsource.New(),
				Hooks: []jobmanager.Hook{
					jobmanager.Before(Core),
					jobmanager.Before(ApplicationConnector),
				},
				Requires: needs(kyma.Application),
				RemoveBy: "1.13.0",
			},
			Chart:  &Chart{Timeout: 15 * time.Minute, Rollback: 5 * time.Minute},
			Tested: "stand-ins for Kyma's controllers",
		},
		{
			Registration: jobmanager.Registration{
				Job: serviceinstance.New(),
				Hooks: []jobmanager.Hook{
					jobmanager.Before(Core, "httpsource-sync"),
					jobmanager.Before(ApplicationConnector, "httpsource-sync"),
				},
				Requires: needs(kyma.ServiceInstance),
				RemoveBy: "1.13.0",
			},
			Chart: &Chart{
				Timeout: 30 * time.Minute, Rollback: 10 * time.Minute,
				Flags: map[string][]string{beforeConnector: complete},
			},
			Tested: "the real Service Catalog, with a stand-in for application-broker",
		},
		{
			Registration: jobmanager.Registration{
				Job: trigger.New(),
				Hooks: []jobmanager.Hook{
					jobmanager.Before(Core, "serviceinstance-recreate"),
					jobmanager.Before(ApplicationConnector, "serviceinstance-recreate"),
					jobmanager.After(Core),
					jobmanager.After(ApplicationConnector, "eventservice-verify"),
				},
				Requires: needs(kyma.Subscription),
				RemoveBy: "1.13.0",
			},
			Chart: &Chart{
				Timeout: 30 * time.Minute, Rollback: 10 * time.Minute, UndoneByRollback: true,
				Flags: map[string][]string{beforeConnector: {"--require-triggers"}, afterConnector: complete},
			},
			Tested: "the real Knative Eventing, too",
		},
		{
			Registration: jobmanager.Registration{
				Job:      eventservice.New(),
				Hooks:    []jobmanager.Hook{jobmanager.After(ApplicationConnector)},
				Requires: needs(kyma.Application),
				SkipIf:   notYetUpgraded,
				NoUndo:   "it changes nothing, so there is nothing to undo",
				RemoveBy: "1.13.0",
			},
			Chart: &Chart{
				Timeout: 50 * time.Minute, TimeoutDoc: "It waits 4 minutes for each Application: for N of them, set 2 minutes and N x 4 minutes.",
				Flags: map[string][]string{afterConnector: complete},
			},
			Tested: "real pods, too",
		},
		{
			Registration: jobmanager.Registration{
				Job: scaledown.New(),
				Hooks: []jobmanager.Hook{
					jobmanager.After(Core, "trigger-sync"),
					jobmanager.After(ApplicationConnector, "trigger-sync"),
				},
				RemoveBy: "1.13.0",
			},
			Chart: &Chart{
				Timeout: 15 * time.Minute, Rollback: 5 * time.Minute, UndoneByRollback: true,
				Flags: map[string][]string{afterConnector: complete},
			},
			Tested: "real pods, too",
		},
		{
			Registration: jobmanager.Registration{
				Job:      remains,
				Hooks:    []jobmanager.Hook{jobmanager.After(jobmanager.Global)},
				SkipIf:   unless(remains.Asked, "it deletes, so it runs only if asked to: --eventbus-purge.yes"),
				RemoveBy: "1.17.0",
			},
			OnlyWith: "--eventbus-purge.yes",
			Chart: &Chart{
				Timeout: 10 * time.Minute, TimeoutDoc: "Only its plan runs here, as the gate before Kyma 1.12; you cannot leave it out.",
				Gate: &Gate{Before: ClusterEssentials, Flags: []string{"--fail-if-in-use", "--ignore-release"}},
			},
			Tested: "the real Knative Eventing, too",
		},
	}
}

// Jobs are the registrations of a table.
func Jobs(all []Entry) []jobmanager.Registration {
	jobs := make([]jobmanager.Registration, len(all))
	for i := range all {
		jobs[i] = all[i].Registration
	}
	return jobs
}
