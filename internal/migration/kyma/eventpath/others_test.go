package eventpath

import "testing"

// TestWayOut: the reason that a Trigger uses a Broker has a next command, and no other has.
func TestWayOut(t *testing.T) {
	const remove = "kubectl -n shop delete trigger.eventing.knative.dev/a"
	for reason, tc := range map[string]struct {
		used map[string]bool
		why  string
		want string
	}{
		"OfSomebodyElse": {map[string]bool{"Trigger shop/a": false}, "Trigger shop/a gets its events through it", remove},
		"OfTriggerSync":  {map[string]bool{"Trigger shop/a": true}, "Trigger shop/a, made by trigger-sync, gets its events through it", "eventmesh-migrate undo trigger-sync"},
		"OfBoth":         {map[string]bool{"Trigger shop/a": false, "Trigger shop/A": true}, "Trigger shop/a, Trigger shop/A get their events through it", remove},
		"OfFive": {
			map[string]bool{"Trigger shop/a": false, "Trigger shop/b": false, "Trigger shop/c": true, "Trigger shop/d": true, "Trigger shop/e": true},
			"Trigger shop/a, Trigger shop/b, Trigger shop/c and 2 more get their events through it", remove,
		},
	} {
		why := because(tc.used)
		if why != tc.why {
			t.Errorf("%s: %q, want %q", reason, why, tc.why)
		}
		if way := WayOut(why); way.Command != tc.want || way.Note == "" {
			t.Errorf("%s: %+v, want %q", reason, way, tc.want)
		}
	}
	if way := WayOut("carries live events: Deployment a/b posts those of x to the mesh"); way.Note+way.Command != "" {
		t.Errorf("live events have no way out: %+v", way)
	}
}
