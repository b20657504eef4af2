// Package mesh has the Trigger that leads all events of the Broker to the controllers, which know
// the Subscriptions and post to the sinks. So the mesh does the same work for each event, however
// many Subscriptions there are.
//
// # What keeps events from being lost
//
// Knative may say of a Trigger that it is ready while it thinks of a former Broker of the same
// name. So a Trigger carries the UID of the Broker that it was created for, and is created again
// for another one.
//
// Knative says that a Trigger is ready before its Channel delivers to it
// (docs/decisions/1201-the-mesh.md). So the controller posts probes through the Broker until one
// has come through the Trigger, which says in the URI of its subscriber which one it is. A probe
// goes to no sink.
//
// A controller that was paused may delete what another one relies on by now. So a process that
// begins to lead, or in whose time the mesh begins to serve, writes the epoch to the Trigger, and a
// Trigger is deleted only in the version that was seen.
//
// An earlier version had a Trigger for each type of a Subscription. They stay until the mesh is
// left: when several Triggers of one Broker are deleted at a time, Knative leaves subscribers of
// them in its Channel, and refuses each event from then on. A receiver takes what they lead to it,
// and delivers nothing of it once events come through the one Trigger.
package mesh
