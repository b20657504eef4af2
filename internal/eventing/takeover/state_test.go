package takeover

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// every calls a function with each state that can be.
func every(do func(state)) {
	fields := reflect.TypeFor[state]().NumField()
	for bits := range 1 << fields {
		var s state
		for i := range fields {
			reflect.ValueOf(&s).Elem().Field(i).SetBool(bits>>i&1 == 1)
		}
		if s.OurReady && !(s.OurOperator && s.OurController) {
			continue // what does not run is not ready
		}
		do(s)
	}
}

// accepts tells whether a client finds a publisher behind the Service.
func accepts(s state) bool { return s.ServiceIsOurs || s.TheirPublisher || s.Bridge }

// TestEveryStateLeadsToTheEnd: whatever a killed run has left, and whoever has meddled, both ways
// come to their end.
func TestEveryStateLeadsToTheEnd(t *testing.T) {
	every(func(s state) {
		for _, to := range []Direction{Over, Back} {
			is, done := s, 0
			for n := next(is, to); n != none; n = next(is, to) {
				if is, done = after(is, n), done+1; done > 25 {
					t.Fatalf("%s from %+v does not end: %v", to, s, route(s, to))
				}
			}
			want := state{OurOperator: true, OurController: true, OurReady: true, ServiceIsOurs: true, TheirDrained: true, OurDrained: is.OurDrained, OurFinalizer: is.OurFinalizer}
			if to == Back {
				want = state{TheirOperator: true, TheirPublisher: true, OurDrained: true, TheirDrained: is.TheirDrained, TheirFinalizer: is.TheirFinalizer}
			}
			if is != want {
				t.Errorf("%s from %+v ends at %+v", to, s, is)
			}
		}
	})
}

// TestNoStepLosesAnEvent: what must hold before each step, from every state that keeps the promises
// itself.
func TestNoStepLosesAnEvent(t *testing.T) {
	seen := map[step]bool{}
	every(func(s state) {
		both := s.TheirOperator && (s.OurOperator || s.OurController)
		if !accepts(s) || both {
			return
		}
		for _, to := range []Direction{Over, Back} {
			n := next(s, to)
			seen[n] = true
			if problem := loses(s, n); problem != "" {
				t.Errorf("%s from %+v: %s: %s", to, s, n, problem)
			}
		}
	})
	for _, s := range slices.Sorted(maps.Keys(says)) {
		if !seen[s] {
			t.Errorf("no way has the step %s", s)
		}
	}
}

// loses is what is wrong with a step, by rules that know nothing of the order of steps.
func loses(s state, n step) string {
	is := after(s, n)
	switch {
	case n == none:
		return ""
	case !accepts(is):
		return "no client finds a publisher"
	case is.TheirOperator && (is.OurOperator || is.OurController):
		return "two controllers write one status"
	case n == releaseTheirs && s.TheirOperator, n == releaseOurs && s.OurOperator:
		return "its operator writes it again"
	case n == makeBridge && !s.Frozen:
		return "a Subscription that is created now gets no event that the bridge accepts"
	case n == thaw && s.Bridge:
		return "a Subscription that is created now gets no event of one of two publishers"
	case n == leadToOurs && !s.OurReady:
		return "our publisher is not there"
	case n == closePublisher && !s.Bridge:
		return "nobody else accepts"
	case n == removeBridge && !s.ServiceIsOurs && !s.TheirPublisher:
		return "nobody else accepts"
	case n == openPublisher && !s.TheirOperator:
		return "nobody has looked whether their consumers are there"
	case n == startTheirs && s.ServiceIsOurs && !s.Bridge && !s.TheirPublisher:
		return "their operator takes the Service away from our publisher"
	}
	return ""
}

// TestRoutes are the two ways as people see them.
func TestRoutes(t *testing.T) {
	theirs := state{TheirOperator: true, TheirFinalizer: true, TheirPublisher: true, TheirDrained: true, OurDrained: true}
	ours := state{OurFinalizer: true, OurOperator: true, OurController: true, OurReady: true, ServiceIsOurs: true, TheirDrained: true}
	for _, tc := range []struct {
		from state
		to   Direction
		want []step
	}{
		{theirs, Over, []step{
			freeze, stopTheirs, startOurs, makeBridge, holdOurs, startTheirs, closePublisher, awaitTheirDrain, stopTheirs, startOurs, leadToOurs, removeBridge, releaseTheirs, thaw,
		}},
		{ours, Back, []step{
			freeze, makeBridge, leadToTheirs, holdOurs, startTheirs, openPublisher, removeBridge, stopTheirs, startOurs, awaitOurDrain, holdOurs, releaseOurs, startTheirs, thaw,
		}},
		{theirs, Back, nil},
		{ours, Over, nil},
	} {
		if got := route(tc.from, tc.to); !slices.Equal(got, tc.want) {
			t.Errorf("%s from %+v:\n got %v\nwant %v", tc.to, tc.from, got, tc.want)
		}
	}
	for s, text := range says {
		if text[0] == "" || text[1] == "" {
			t.Errorf("%s says nothing", s)
		}
	}
}

// TestOnlyWaits: a step that a former run has begun writes nothing, and is not the end of the way.
func TestOnlyWaits(t *testing.T) {
	deferred := func(s *snapshot) bool {
		plan := decide(s, options{to: Over})
		return len(plan.Units) == 1 && len(plan.Findings) == 1 && plan.Findings[0].Severity == migration.Deferred
	}
	s := readyToGo(t)
	if deferred(s) {
		t.Error("a step that writes is deferred")
	}
	s.theirOperator.Object["spec"].(map[string]any)["replicas"] = int64(0)
	s.theirPublisher.Object["spec"].(map[string]any)["replicas"] = int64(0)
	s.ourOperator.Object["spec"].(map[string]any)["replicas"] = int64(1) // not ready yet
	s.theirs = &Backlog{Stream: true}
	if !deferred(s) {
		t.Errorf("waiting for our operator would be the end: %+v", decide(s, options{to: Over}))
	}
}
