// Package journal is the memory of a run: what it is about to change, the objects as they were
// before, and what is known of each change.
//
// A Record is what is stored of a unit before it begins, an Entry what this process knows of it,
// and a Step one change of it. Nobody else writes what they hold: a method says what happened.
// Store reads and writes the Secrets, Recorder is the journal of one run. Journals of earlier
// builds are read, too: see readRecords.
package journal
