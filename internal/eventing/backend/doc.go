// Package backend has the facts that the parts of eventing share: names and labels of objects, the
// ConfigMaps through which the operator, the controller and the publisher talk, and how an event is
// addressed in NATS. It has no client, and decides nothing.
package backend
