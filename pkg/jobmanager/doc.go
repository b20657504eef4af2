// Package jobmanager runs migration jobs around the deployment of components: which of
// them, when, in which order, and whether at all. It is for an installer to import.
//
// # A job
//
// A job is a migration.Job: it reads the cluster and returns a plan, the changes that
// are left to make. The engine makes them, with a journal, and rolls them back if one
// fails. A job is needed if its plan has anything to do, so that it decides by the state
// of the cluster, and never by a version. On a migrated cluster it costs some reads.
//
// # A registration
//
// A Registration says of a job all that its plan does not:
//
//	jobmanager.Registration{
//		Job: growVolumes,
//		// Before the deployment of logging, when the job prepare-storage has ended.
//		Hooks: []jobmanager.Hook{jobmanager.Before("logging", "prepare-storage")},
//		// Without StatefulSets there is nothing to do.
//		Requires: []jobmanager.Requirement{{Kind: statefulSet, IfMissing: jobmanager.NotNeeded}},
//		// Lint fails from this release on, until the job is removed.
//		RemoveBy: "1.20.0",
//	}
//
// A job may belong to several hooks: before or after a component is deployed, and, with
// Global as the component, before and after everything. In each of them it runs again if
// it is needed again.
//
// # A manager
//
// New takes all jobs and all components, and reports all mistakes together: unknown
// names, a circle in the order. The manager can then:
//
//	m.Deploy(ctx, components, deploy)   // deploy one component after the other, with all hooks
//	m.Begin(components)                 // let several workers deploy: Pre, Post, Fail, End
//	m.Run(ctx, selection)               // deploy nothing, and do what the cluster is ready for
//	m.Plan(ctx, selection)              // show what Run would do
//	m.Needs(ctx)                        // say of each job whether it is needed now, and why
//	m.Undo(ctx, "grow-volumes")         // revert the newest run of one job
//	m.Lint("1.20.0")                    // fail if a job must be removed by that release
//
// Deploy, Run and Plan return a Report: how long each job took to decide and to run,
// what it did, and one exit code, the worst of all (see Worst).
//
// # The rules
//
//   - Global pre-jobs come first, then for each component its pre-jobs, its deployment
//     and its post-jobs, then the global post-jobs.
//   - Jobs of one hook run side by side, unless one names others that it comes after.
//   - Hooks of several components may run side by side, and then share one Lease. One
//     job runs once at a time, whatever the hook.
//   - A failed pre-job stops its component, a failed global one everything. The post-jobs
//     of a component do not run if it failed; the global ones do not if anything did.
//   - No error is lost: all are joined, and each names its job.
//   - A panic of a job is its error, and the others continue. A job must recover panics
//     in goroutines that it starts itself: the manager cannot.
//   - A job that ignores the end of its context is abandoned, and its writes are blocked
//     from then on.
//
// The manager itself writes nothing, retries nothing and undoes nothing. The engine
// writes, a job retries, and a person calls Undo.
//
// It keeps no state outside its values. Two managers in one process do not know each
// other, so that each needs an identity of its own (engine.Options.Identity), which is the default.
package jobmanager
