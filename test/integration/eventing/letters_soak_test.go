//go:build soak

package eventing_test

import "testing"

// TestSoakDeadLetters is TestNothingIsLostToDeadLetters with 100,000 deliveries.
func TestSoakDeadLetters(t *testing.T) { nothingIsLostToDeadLetters(t, 33_334, 12) }
