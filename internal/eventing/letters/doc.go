// Package letters has the events that sinks did not take and that were given up, in a stream of
// NATS.
//
// A dead letter is the message as it was in the stream, with headers that say whose it is and what
// became of it. It is stored before the event is acknowledged, so that a kill leaves it in both
// places and never in none, and it is deleted after a sink has taken it.
package letters
