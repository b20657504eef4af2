// Package rollback undoes the changes of a journal, newest first.
//
// It undoes only what the run has begun, and only what the cluster still shows as the run left
// it. What carries live events stays. What cannot be restored is named, and counted.
package rollback
