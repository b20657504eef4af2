// Package delivery brings events to the sinks of Subscriptions, at least once and with a bounded
// number in flight: those of JetStream for as long as it takes (Deliveries), those of the mesh
// within the request (Receiver). It asks NATS for nothing but messages, and Kubernetes for nothing
// at all. A sink sees the same request from both.
package delivery
