// Package lease is the lock of all runs on a cluster: one Lease.
//
// A Lock is that of one process. It says until when the process may write, by the monotonic
// and by the wall clock, and it marks on the Lease which jobs have an open run. A Seat is the
// place of one job at a lock that several jobs of a process share.
package lease
