// Package write sends single writes. A write has no second effect when its answer is lost: it is
// repeated until it is known to be done, or refused. Names, UIDs and versions are in each call,
// and each call is made only while the process holds the lock.
package write
