// Package delivery delivers events to the sinks of Subscriptions, at least once and with a bounded
// number in flight. It retries events of JetStream until they are delivered (Deliveries), and
// delivers events of the mesh within the request (Receiver). It only pulls messages from NATS, and
// makes no requests to the API server. A sink sees the same request from both.
package delivery
