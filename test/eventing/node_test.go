//go:build e2e

package main

import "testing"

// TestNode runs all steps on a node, with the real Knative Eventing: no event is lost in two
// switches under load.
func TestNode(t *testing.T) {
	told(t, false, "The backend is EventMesh after", "The backend is NATS after", "the switch to EventMesh", "AwaitingSubscriptions")
}

// TestUpNode: with a node, each command that is shown can be pasted, and nothing is left in the
// end.
func TestUpNode(t *testing.T) {
	tried(t, options{dir: t.TempDir()}, func(s *screen) {
		s.paste(3)
		s.order(3)
	})
}
