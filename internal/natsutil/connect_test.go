package natsutil

import (
	"testing"
	"time"
)

// TestReconnectDelay: another server is tried at once, and one that stays away is not asked all the
// time.
func TestReconnectDelay(t *testing.T) {
	for try := range 100 {
		delay, low, high := reconnectDelay(try), time.Second, 1200*time.Millisecond
		if try <= 1 {
			low, high = 0, 200*time.Millisecond
		}
		if delay < low || delay >= high {
			t.Errorf("try %d after %s, want %s to %s", try, delay, low, high)
		}
	}
}
