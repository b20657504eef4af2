// Package controller lets the events of each Subscription be delivered: it validates the
// Subscription, creates its consumer in NATS, and says in its status what became of that. Of
// several processes, the one with the Lease does all of it.
//
// # What it writes
//
// Of Subscriptions, status and one finalizer; the ConfigMap <prefix>-controller-state; the Lease;
// on the mesh, the Trigger, and of each process its entry in <prefix>-controller-roster.
// In NATS, consumers of the stream, which it never changes. A consumer is deleted only when the API
// server says, live, that its Subscription is gone or being deleted.
//
// # Keys
//
// All that is done about one Subscription is done by the one reconciler that has its key. Sweeps,
// lost consumers and changes of the backend only put keys into the queue.
package controller
