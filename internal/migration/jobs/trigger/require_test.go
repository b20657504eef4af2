package trigger

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestRequireTriggers(t *testing.T) {
	withoutEndpoint := func(s *snapshot) { delete(k8sobject.MapAt(s.subscriptions[0].Object, "spec"), "endpoint") }
	terminating := func(s *snapshot) {
		ns := s.namespaces["shop"]
		ns.terminating = true
		s.namespaces["shop"] = ns
	}
	for name, tc := range map[string]struct {
		reason  string
		edit    func(*snapshot)
		require bool
		want    map[migration.Severity]int
	}{
		"Deferred": {"a Subscription without an equivalent can wait, as long as the Event Bus serves it", withoutEndpoint, false,
			map[migration.Severity]int{migration.Deferred: 1}},
		"Refused": {"after the switch it would get nothing: the switch must not come", withoutEndpoint, true,
			map[migration.Severity]int{migration.Error: 1}},
		"Passes": {"what goes away by itself is no reason to stop", terminating, true,
			map[migration.Severity]int{migration.Deferred: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := contracted()
			tc.edit(s)
			o := New().options
			o.requireTriggers = tc.require
			d := newDecision(s, o)
			d.expand()
			got := map[migration.Severity]int{}
			for _, f := range d.plan.Findings {
				got[f.Severity]++
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s\n%v", tc.reason, diff, d.plan.Findings)
			}
		})
	}
}
