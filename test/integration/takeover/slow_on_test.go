//go:build slow || soak

package takeover_test

// all: each write is killed, and many Subscriptions.
const all = true
