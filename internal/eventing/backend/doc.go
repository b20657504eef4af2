// Package backend defines what the parts of eventing share: names and labels of objects, the
// ConfigMaps through which the operator, the controller and the publisher communicate, and the
// subjects of events in NATS. It has no client and makes no decisions.
package backend
