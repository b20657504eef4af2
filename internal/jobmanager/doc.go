// Package jobmanager runs the jobs that belong to a deployment: which of them,
// when, in which order, and whether at all.
//
// A job belongs to one or more hooks: before or after a component is deployed, or
// globally, before and after everything. It runs only if the cluster's state says
// that it is needed; versions are never asked. The rules:
//
//   - global pre-jobs, then for each component its pre-jobs, its deployment and its
//     post-jobs, then the global post-jobs;
//   - jobs of one hook run side by side, unless one names others it comes after;
//   - a failed pre-job stops its component, a failed global one everything; a
//     component's post-jobs do not run when it failed, the global post-jobs not when
//     anything did;
//   - no error is swallowed: all are joined, and each names its job;
//   - a panic of a job is its error, and the others go on; a job recovers the
//     goroutines that it starts itself, since nobody else can;
//   - a job that ignores the end of its context is left behind, and can write
//     nothing from then on.
//
// The manager writes nothing itself: the engine (pkg/engine) does, under
// one Lease for all jobs of a run. Retries are the jobs' business. Nothing is ever
// taken back unless somebody asks for it by the job's name (Undo).
//
// It keeps no state outside its values: two managers in one process do not know
// each other.
package jobmanager
