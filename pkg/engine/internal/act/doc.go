// Package act makes one change by its verb, and tells by the cluster whether a change was made.
//
// An Actor is what execution and rollback have in common: the job, the writer, the journal and
// the findings of one run.
package act
