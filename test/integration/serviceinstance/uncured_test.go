//go:build slow || soak

package serviceinstance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/serviceinstance"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// uncured is the job without what it does about the trap of application-broker: it
// never restarts it.
type uncured struct{ *serviceinstance.Job }

func (u uncured) Plan(ctx context.Context, c *migration.Cluster, o migration.PlanOptions) (*migration.Plan, error) {
	plan, err := u.Job.Plan(ctx, c, o)
	if err != nil {
		return nil, err
	}
	for i := range plan.Units {
		plan.Units[i].Changes = slices.DeleteFunc(plan.Units[i].Changes, func(ch migration.Change) bool { return ch.Verb == migration.Restart })
	}
	return plan, nil
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
			*v = 5 * time.Second // it cannot succeed
		}
	}
	engine, err := engine.New(w.Config(), engine.Options{Names: cli.Names, StateNamespace: kyma.StateNamespace, Identity: t.Name(), Log: zaptest.NewLogger(t)})
	w.check(err)
	report := engine.Run(w.ctx, uncured{job})
	if report.Result != migration.PartlyRestored {
		t.Fatalf("without the cure: %s: %s", report.Result, report.Message)
	}
	if u := w.get(standin.ServiceInstances, ns, "orders"); u == nil || ready(u) {
		t.Errorf("without the cure, the instance is %v", u)
	}
	refused := func(f migration.Finding) bool {
		return f.Object == "ServiceInstance shop/orders" && strings.Contains(f.Problem, "element already exists")
	}
	if !slices.ContainsFunc(report.Findings, refused) {
		t.Errorf("it failed for another reason: %v", report.Findings)
	}
}
