// Package natsutil has the mechanics of NATS that know nothing of ours: users with keys,
// certificates of servers, connections.
package natsutil
