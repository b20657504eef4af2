// Package mesh has the Triggers of Subscriptions: one for each type, all beside the Broker of
// eventing, and all to the controller, which posts to the sink.
//
// # What keeps events from being lost
//
// A filter of Knative works with a cache. One that knows an earlier filter of a Trigger answers
// with success and drops the event, so a filter is never updated: what it says is in the name of
// the Trigger, and a Trigger that differs is deleted and created.
//
// Knative may say of a Trigger that it is ready while it thinks of a former Broker of the same
// name. So a Trigger carries the UID of the Broker that it was created for, and is created again
// for another one.
//
// Knative says that a Trigger is ready before its Channel delivers to it
// (docs/decisions/1201-the-mesh.md). So the controller posts probes through the Broker until one
// has come through the Trigger. The filters let the same probe through all Triggers, each of which
// has its own name in the URI of its subscriber. A probe goes to no sink.
//
// A controller that was paused may delete what another one relies on by now. So a process that
// begins to lead, or in whose time the mesh begins to serve, writes the epoch to all Triggers, and
// a Trigger is deleted only in the version that was seen.
package mesh
