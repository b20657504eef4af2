// Package letters stores dead letters, which are events that were given up because a sink did not
// accept them, in a stream of NATS.
//
// A dead letter is the original message, with headers that name its Subscription and the outcome of
// the delivery. It is stored before the event is acknowledged, so that a kill leaves it in both
// places and never in neither. It is deleted after a sink has accepted it.
package letters
