// Package wait evaluates conditions over watched objects.
//
// A Waiter has one list and one watch for each kind and namespace, however many conditions
// look at them. It resolves the kinds of a condition by discovery. SharedReads are what the
// rechecks of a run read: each key once for all who ask at the same time. A Grant waits for
// permissions that were granted a moment ago.
package wait
