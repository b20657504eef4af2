//go:build soak

package trigger

import (
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// TestSoakSuite is the whole suite, with the kill loops of rollback and undo.
func TestSoakSuite(t *testing.T) {
	halves(t, func(t *testing.T, s suite.Subject) { suite.All(t, s, 8) }, "Expand", "Contract", "ContractWithoutController")
}

// TestSoakSlowController: 3,000 Subscriptions beside a controller that deletes 1.5 a
// second, which would take it 33 minutes, with a limit of 10. The job deletes them in its
// place; undone, they are all there again.
func TestSoakSlowController(t *testing.T) {
	const n = 3000
	p := on(t, versions[0])
	ctx := t.Context()
	p.patience = 20 * time.Minute
	defer func() { p.patience = 0 }()
	p.load(ctx, t, true, many(n)...)
	p.mesh.BreakController(standin.ControllerFaults{Requests: 15})
	r, code := p.run(t, "run", "--timeout=10m")
	want(t, r, code, migration.Succeeded, 0)
	finds(t, r, migration.Info, "Deployment kyma-system/event-bus-subscription-controller", "it is scaled to 0 while this job does its part")
	t.Logf("%d Subscriptions: %.0f s, %d reads, %d writes, at most %.0f MiB resident", n, r.Seconds, r.Requests.Reads, r.Requests.Writes, p.last.PeakMiB)
	p.nothingOfTheBus(ctx, t)
	p.restored(ctx, t)
	p.mesh.BreakController(standin.ControllerFaults{})
	r, code = p.run(t, "undo", "--timeout=15m")
	want(t, r, code, migration.PartlyRestored, 3) // Triggers carry live events
	if got := p.names(ctx, t, standin.KymaSubscriptions, ""); len(got) != n {
		t.Errorf("%d Subscriptions after undo", len(got))
	}
}
