// Package execute makes the units of a run side by side.
//
// It puts units into the journal in batches, just ahead of their turn. It bounds how many writes
// are under way and how many units wait, asks the job again before guarded changes, and lets
// nothing new begin after a failure.
package execute
