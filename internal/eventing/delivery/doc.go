// Package delivery brings events from JetStream to the sinks of Subscriptions: at least once, with a bounded number in flight, and for as
// long as it takes. It asks NATS for nothing but messages, and Kubernetes for nothing at all.
package delivery
