//go:build slow || soak

package serviceinstance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"

	"github.com/kyma-project/eventmesh-migration/internal/jobs/serviceinstance"
	"github.com/kyma-project/eventmesh-migration/internal/migration"
	"github.com/kyma-project/eventmesh-migration/test/kyma"
)

// uncured is the job without what it does about the trap of application-broker: it
// never restarts it.
type uncured struct{ *serviceinstance.Job }

func (u uncured) Plan(ctx context.Context, c *migration.Cluster) (*migration.Plan, error) {
	plan, err := u.Job.Plan(ctx, c)
	if err != nil {
		return nil, err
	}
	for i := range plan.Units {
		plan.Units[i].Changes = slices.DeleteFunc(plan.Units[i].Changes, func(ch migration.Change) bool { return ch.Verb == migration.Restart })
	}
	return plan, nil
}

// trapped are instances of before application-broker's last restart.
func (w *world) trapped() (before map[string]any) {
	w.t.Helper()
	w.instance("orders", "orders")
	w.instance("stock", "stock")
	w.bind("till", "orders")
	w.check(w.broker.Restart(w.ctx))
	return w.census()
}

// TestRestartTrap: application-broker has restarted since the instances were
// provisioned. It has forgotten the operations, but not the instances, and would
// refuse each for good that comes in the place of another.
func TestRestartTrap(t *testing.T) {
	w := on(t)
	before := w.trapped()
	w.succeeds(migration.Succeeded, "--strategy=always")
	if diff := cmp.Diff(before, w.census()); diff != "" {
		t.Errorf("lost or changed (-before +after):\n%s", diff)
	}
	// It has deprovisioned these external IDs before, in the same life.
	w.succeeds(migration.Succeeded, "--strategy=always")
	if diff := cmp.Diff(before, w.census()); diff != "" {
		t.Errorf("lost or changed by the second recreation (-before +after):\n%s", diff)
	}
	w.isOnTheMesh("orders", orders)
}

// TestRestartTrapIsReal holds that it is the restart that makes TestRestartTrap
// pass: without it, the instance is refused for good, however often it is made
// again.
func TestRestartTrapIsReal(t *testing.T) {
	w := on(t)
	w.trapped()
	job := serviceinstance.New()
	for _, setting := range job.Settings() {
		switch v := setting.Value.(type) {
		case *string:
			if setting.Name == "strategy" {
				*v = "always"
			}
		case *time.Duration:
			*v = 5 * time.Second // it is in vain anyway
		}
	}
	engine, err := migration.New(w.Config(), migration.Options{Identity: t.Name(), Log: zaptest.NewLogger(t)})
	w.check(err)
	report := engine.Run(w.ctx, uncured{job})
	if report.Result != migration.PartlyRestored {
		t.Fatalf("without the cure: %s: %s", report.Result, report.Message)
	}
	if u := w.get(kyma.ServiceInstances, ns, "orders"); u == nil || ready(u) {
		t.Errorf("without the cure, the instance is %v", u)
	}
	refused := func(f migration.Finding) bool {
		return f.Object == "ServiceInstance shop/orders" && strings.Contains(f.Problem, "element already exists")
	}
	if !slices.ContainsFunc(report.Findings, refused) {
		t.Errorf("it failed for another reason: %v", report.Findings)
	}
}
