package refusal

import (
	"testing"
	"time"
)

// TestSometimes: one refusal is logged in a while, and the next line has the number of the others.
func TestSometimes(t *testing.T) {
	var l Log
	began := time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		at   time.Duration
		left int
		may  bool
	}{
		{0, 0, true},
		{time.Second, 0, false},
		{every - 1, 0, false},
		{every, 2, true},
		{every + 1, 0, false},
		{3 * every, 1, true},
	} {
		if left, may := l.may(began.Add(step.at)); left != step.left || may != step.may {
			t.Errorf("step %d: %t after %d, want %t after %d", i, may, left, step.may, step.left)
		}
	}
}
