// Package mesh manages the Trigger that sends all events of the Broker to the controllers. The
// controllers know the Subscriptions and post to the sinks, so that the work of the mesh for an
// event does not depend on the number of Subscriptions.
//
// # What keeps events from being lost
//
// Knative may report that a Trigger is ready while it still refers to a former Broker of the same
// name. A Trigger therefore carries the UID of the Broker that it was created for, and is recreated
// for another one.
//
// Knative reports that a Trigger is ready before its Channel delivers to it
// (docs/decisions/1201-the-mesh.md). The controller therefore posts probes to the Broker until one
// arrives through the Trigger, which identifies itself in the URI of its subscriber. Probes are not
// sent to sinks.
//
// A paused controller could delete a Trigger that another controller relies on. A process that
// becomes the leader, or that leads when the mesh begins to serve, therefore writes the epoch to
// the Trigger, and the deletion of a Trigger has its resourceVersion as a precondition.
//
// An earlier version had a Trigger for each type of a Subscription. They stay until the mesh is
// left: when several Triggers of one Broker are deleted at a time, Knative leaves subscribers of
// them in its Channel, and refuses each event from then on. A receiver takes what they lead to it,
// and delivers nothing of it once events come through the one Trigger.
package mesh
