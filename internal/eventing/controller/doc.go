// Package controller reconciles Subscriptions: it validates each one, creates its consumer in NATS,
// and reports the result in its status. With several processes, only the holder of the Lease does
// so.
//
// # What it writes
//
// In the cluster, it writes the status and one finalizer of Subscriptions, the ConfigMap
// <prefix>-controller-state, and the Lease; on the mesh, also the Trigger, and for each process its
// entry in <prefix>-controller-roster. In NATS, it writes consumers of the stream, but never the
// stream. It deletes a consumer only after a live read shows that its Subscription is gone or being
// deleted.
//
// # Keys
//
// Everything about one Subscription is done by the reconciler under its key. Sweeps, lost consumers
// and changes of the backend only requeue keys.
package controller
