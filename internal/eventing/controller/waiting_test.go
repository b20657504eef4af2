package controller

import (
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
)

// TestWaiting: the condition says what becomes of events that are not taken. On f3299ef it said the
// same of each: that it is sent again.
func TestWaiting(t *testing.T) {
	at := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		reason string
		health health.Health
		want   string
	}{
		{"events wait", health.Health{}, "Events wait, and are sent again"},
		{
			"one stops all later ones", health.Health{Blocking: health.Blocking{ID: "7", Since: at}},
			`Event "7" is refused since 2026-11-25T10:00:00Z, and all later ones wait for it`,
		},
		{
			"one became a dead letter", health.Health{Letter: at},
			"Events wait, and are sent again; one that waited too long became a dead letter at 2026-11-25T10:00:00Z",
		},
	} {
		f := findings{health: tc.health}
		if got := f.waiting(at); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}
