//go:build slow

package eventing_test

import "testing"

// TestNothingIsLeftOfThree is TestNothingIsLeft with three servers.
func TestNothingIsLeftOfThree(t *testing.T) {
	nothingIsLeft(t, newRigOn(t, startServers(t, 3, 0, "10s"), true))
}

// TestFullVolumesOfThree is TestFullVolume with three servers, each with a volume of its own.
func TestFullVolumesOfThree(t *testing.T) {
	fullVolume(t, func(t *testing.T, size int64) *plane { return startServers(t, 3, size, "10s") })
}
