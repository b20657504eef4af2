//go:build slow || soak

package prober_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/prober"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// TestWithoutSafeguards: the prober is able to fail. With one safeguard switched
// off, events are lost, and it says during which step.
func TestWithoutSafeguards(t *testing.T) {
	c := startCluster(t, 2, "paid.crm", "slow.shop")
	const careless, hasty = "app-0001", "app-0002"
	if err := standin.PutHTTPSources(t.Context(), c.Config(), careless, hasty); err != nil {
		t.Fatal(err)
	}
	if err := standin.Load(t.Context(), c.Config(), append(standin.EventBus(), standin.EventService(careless, false), standin.EventService(hasty, false))...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.controllers.WaitReady(ctx, careless, hasty); err != nil {
		t.Fatal(err)
	}
	c.link(t, hasty, "shop")
	c.subscribe(t, "crm", "paid", careless, "order.paid")
	c.subscribe(t, "shop", "slow", hasty, "order.paid")
	c.awaitMesh(t, "the Event Bus delivers", func(m *standin.Mesh) bool {
		return m.Has(standin.KymaSubscriptions, 2) && standin.SubscriptionsReady(m) && standin.LinksReady(m)
	})
	c.awaitPath(t, "the event path stands", func(p *standin.EventPath) bool {
		return p.Subscribed(3) && p.Serving(careless) && p.Serving(hasty)
	})

	// As Kyma 1.11's own migration did: the Subscription goes while the event-service
	// posts to the Event Bus, which accepts what nobody gets.
	t.Run("ContractBeforeTheSwitch", func(t *testing.T) {
		p := c.probe(t, []prober.Target{c.target(careless, "order.paid")}, prober.Options{}, func(_ *prober.Prober, step stepper) {
			step("before")
			step("contract before the switch", func() {
				if err := c.client.Resource(standin.KymaSubscriptions).Namespace("crm").Delete(t.Context(), "paid", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			})
			c.awaitPath(t, "nobody is subscribed", func(p *standin.EventPath) bool { return p.Subscribed(2) })
			step("after")
		}, "paid.crm")
		c.lost(t, p, "after")
	})

	// The real job, told to leave out what it does before it deletes a Subscription:
	// wait until everything on the old path is delivered.
	t.Run("ContractBeforeTheDrain", func(t *testing.T) {
		subscriber := c.subscribers["slow.shop"]
		p := c.probe(t, []prober.Target{c.target(hasty, "order.paid")}, prober.Options{}, func(_ *prober.Prober, step stepper) {
			step("expand", func() { c.triggerSync(t, migration.DeferredResult) })
			subscriber.set(nil) // it is down, and NATS Streaming keeps its events
			step("subscriber down")
			step("switch", func() { c.switchToMesh(t, hasty) })
			step("contract", func() { c.triggerSync(t, migration.Succeeded, "--legacy-traffic=ignore") })
		}, "slow.shop")
		subscriber.set(p)
		c.lost(t, p, "subscriber down")
	})
}

// lost checks that events are missing, those of a step above all.
func (c *cluster) lost(t *testing.T, p *prober.Prober, step string) {
	t.Helper()
	// What is not lost arrives a second after the subscriber is there again.
	short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := p.Await(short); err == nil {
		t.Error("no event is missing")
	}
	r := p.Report()
	t.Logf("the prober's report:\n%s", r)
	if blamed := missingIn(r, step); blamed < perStep {
		t.Errorf("%d events of step %q are missing; all, %d or more, must be", blamed, step, perStep)
	}
	if n := missingIn(r, "start"); n > 0 {
		t.Errorf("%d events are missing of before the mistake", n)
	}
}

func missingIn(r *prober.Report, step string) int {
	n := 0
	for i := range r.Missing {
		if r.Missing[i].Step == step {
			n++
		}
	}
	return n
}

// switchToMesh does what application-operator does, and waits until it is done.
func (c *cluster) switchToMesh(t *testing.T, app string) {
	t.Helper()
	spec, err := json.Marshal(map[string]any{"spec": standin.EventService(app, true).Object["spec"]})
	if err != nil {
		t.Fatal(err)
	}
	deployments := c.client.Resource(standin.Deployments).Namespace(standin.IntegrationNamespace)
	if _, err := deployments.Patch(t.Context(), app+"-event-service", types.MergePatchType, spec, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.node.WaitRolledOut(ctx, standin.IntegrationNamespace, app+"-event-service"); err != nil {
		t.Fatal(err)
	}
	c.awaitPath(t, app+" is on the mesh", func(p *standin.EventPath) bool { return p.OnMesh(app) })
}

// triggerSync runs the real job, which asks the real NATS Streaming what is in
// flight.
func (c *cluster) triggerSync(t *testing.T, want migration.Result, args ...string) {
	t.Helper()
	p := suite.Start(t, process.Program{Binary: c.binaries["trigger-sync"], Args: append([]string{
		"run", "--kubeconfig=" + c.Kubeconfig, "--output=json",
		"--log-format=json", "--lease-duration=1s", "--nats-monitoring-url=" + c.path.MonitoringURL, "--observe-publishers=1s",
	}, args...), Limit: patience})
	if report, code := p.Report(); code != migration.ExitOK || report.Result != want {
		t.Fatalf("%s: exit code %d, result %s, want %s\n%s\n%s", p, code, report.Result, want, p.Stdout(), p.Stderr())
	}
}
