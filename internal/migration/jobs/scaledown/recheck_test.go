package scaledown

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/manifest"
)

// TestRecheck decides once more right before each change. It fails on the commit
// before: the pods of the publisher took minutes to end, and the
// subscription-controller was scaled down under a Subscription made meanwhile.
func TestRecheck(t *testing.T) {
	const pub, ctl = "event-bus-event-publish-service", "event-bus-subscription-controller"
	kind := migration.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: kyma.EventActivation.Group, Version: "v1alpha1", Resource: "eventactivations"},
		Kind:                 kyma.EventActivation.Kind,
	}
	before := snapshot{
		bus: []busDeployment{bus(t, pub, 2, ""), bus(t, ctl, 1, "")}, activation: kind,
		activations: []*unstructured.Unstructured{manifest.Object(t, "{kind: EventActivation, metadata: {namespace: shop, name: svc, finalizers: [eventactivation.finalizers.kyma-project.io]}}")},
	}
	plan := decide(&before, New().options)
	first, second, finalizer := &plan.Units[0].Changes[0], &plan.Units[1].Changes[0], &plan.Units[2].Changes[0]
	down := func(name string) busDeployment {
		return bus(t, name, 0, `, labels: {eventmesh-migration.kyma-project.io/replicas: "2"}`)
	}
	const again = ": kubectl -n kyma-system scale deployment " + pub + " --replicas=2)"
	for _, tc := range []struct {
		reason string
		ch     *migration.Change
		now    snapshot
		want   string
	}{
		{"nothing uses it: the first", first, before, ""},
		{"and the second, when the first is at 0", second, snapshot{bus: []busDeployment{down(pub), bus(t, ctl, 1, "")}}, ""},
		{"and the finalizers, when both are", finalizer, snapshot{bus: []busDeployment{down(pub), down(ctl)}}, ""},
		{
			"an event-service has gone back", first,
			snapshot{bus: before.bus, eventServices: []eventService{{application: "shop", why: unswitched("old")}}},
			"deferred: Deployment kyma-system/" + pub + ": left as it is, because of Application shop: the Event Bus keeps running, because event-service shop-event-service is not switched to the mesh: old (Upgrade application-connector.)",
		},
		{
			"a Subscription was made while the publisher ended: how to scale that up is said", second,
			snapshot{bus: []busDeployment{down(pub), bus(t, ctl, 1, "")}, subscriptions: []subscription{{name: "a/1"}}},
			"deferred: Deployment kyma-system/" + ctl + ": left as it is: the Event Bus keeps running, because 1 Kyma Subscription is left: a/1; Deployment kyma-system/" + pub + " is at 0 already (Scale " + pub + " up again while the Event Bus is needed. trigger-sync moves them to the mesh, or says why it cannot. Run this job after it" + again,
		},
		{
			"a reason that is none to run again for does not hide one that is", first,
			snapshot{bus: before.bus, eventServices: []eventService{{application: "shop", why: unswitched("old"), optedOut: true}}, subscriptions: []subscription{{name: "a/1"}}},
			"deferred: Deployment kyma-system/" + pub + ": left as it is: the Event Bus keeps running, because 1 Kyma Subscription is left: a/1 (trigger-sync moves them to the mesh, or says why it cannot. Run this job after it: eventmesh-migrate run --job=trigger-sync)",
		},
		{
			"and is no failure by itself", first,
			snapshot{bus: before.bus, eventServices: []eventService{{application: "shop", why: unswitched("old"), optedOut: true}}},
			"warning: Deployment kyma-system/" + pub + ": left as it is, because of Application shop: the Event Bus keeps running, because event-service shop-event-service is not switched to the mesh: old (This is no failure, since it carries the label eventmesh-migration.kyma-project.io/skip=true.)",
		},
		{
			"the label was set meanwhile", first,
			snapshot{bus: []busDeployment{bus(t, pub, 2, ", labels: {eventmesh-migration.kyma-project.io/skip: 'true'}"), bus(t, ctl, 1, "")}},
			"warning: Deployment kyma-system/" + pub + ": left as it is: it carries the label eventmesh-migration.kyma-project.io/skip=true, so the Event Bus is left running",
		},
		{
			"Kyma's own migration was started", finalizer,
			snapshot{bus: []busDeployment{absent(pub), absent(ctl)}, migrations: []string{"j"}},
			"deferred: EventActivation shop/svc: left as it is, because of Job kyma-system/j: Kyma's own migration is running: it recreates ServiceInstances and deletes the Kyma Subscriptions that are still needed (" + strings.TrimSuffix(kyma.StopMeshMigration, ".") + ": kubectl -n kyma-system delete job j)",
		},
		{
			"the subscription-controller runs again: it would miss its finalizer", finalizer,
			snapshot{bus: []busDeployment{absent(pub), bus(t, ctl, 1, "")}},
			"deferred: EventActivation shop/svc: its finalizer eventactivation.finalizers.kyma-project.io stays: Deployment kyma-system/" + ctl + " is not at 0 any more (Run the job again when the Event Bus is at 0.)",
		},
		{
			"the namespace was left out meanwhile", finalizer,
			snapshot{bus: []busDeployment{absent(pub), absent(ctl)}, excused: map[string]bool{"shop/svc": true}},
			"info: EventActivation shop/svc: its finalizer eventactivation.finalizers.kyma-project.io stays: it or its namespace is no part of the migration any more",
		},
	} {
		got := ""
		if f := recheck(&tc.now, New().options, tc.ch); f != nil {
			got = string(f.Severity) + ": " + f.String()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestBasis: the patch of a Deployment says what it was decided on.
func TestBasis(t *testing.T) {
	plan := decide(&snapshot{bus: []busDeployment{bus(t, "d", 2, ", labels: {app: d}"), absent("e")}}, New().options)
	want := manifest.Object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-system, name: d, uid: u-d}, spec: {replicas: 2}}")
	if diff := cmp.Diff(want, plan.Units[0].Changes[0].Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
