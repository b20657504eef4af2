//go:build soak

package model_test

import "testing"

// TestSoakModel plays 20,000 schedules.
func TestSoakModel(t *testing.T) {
	schedules(t, 1_000_001, number(t, "MODEL_SCHEDULES", 20_000))
}
