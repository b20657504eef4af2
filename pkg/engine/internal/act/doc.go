// Package act makes one change by its verb, and tells by the cluster whether a change was made.
//
// A Reverser undoes one. An Actor is what both, and those who call them, have in common: the job,
// the writer, the journal and the findings of one run.
package act
