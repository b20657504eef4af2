// Package takeover moves a live cluster from Kyma's own eventing to this one, and back, without
// losing an event. It is a job of package migration: it reads, and returns the next step; the
// engine writes. docs/decisions/1501-the-way-over-from-kymas-eventing.md explains the order of the
// steps, and which part accepts and which delivers events at each moment.
//
//	state   what there is of both, in few words
//	next    the next step of a state, in each direction: pure
//	Job     reads the state, and turns the next step into changes
package takeover
