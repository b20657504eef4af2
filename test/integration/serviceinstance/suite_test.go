//go:build slow || soak

package serviceinstance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/snapshot"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// repairs is the job over one instance that lacks an EventActivation and a Knative
// Subscription. A recreation has its own kill loop: it is not reversible.
func (w *world) repairs() suite.Subject {
	w.instance("orders", "orders")
	return suite.Subject{
		Name: "serviceinstance-recreate", Package: "./cmd/serviceinstance-recreate",
		Args:       []string{"--ready-timeout=10s", "--activation-timeout=10s"},
		BrokenArgs: []string{"--activation-timeout=2s"},
		Kubeconfig: w.Kubeconfig, Admin: w.Config(), Audit: w.ControlPlane,
		// Service Catalog and the stand-ins count in their status alone.
		Snapshot: snapshot.Options{},
		Reset: func(ctx context.Context, t testing.TB) {
			t.Helper()
			w := &world{plane: w.plane, t: t, ctx: ctx}
			w.strip(orders)
		},
		Done: func(ctx context.Context, t testing.TB) {
			t.Helper()
			w := &world{plane: w.plane, t: t, ctx: ctx}
			w.isOnTheMesh("orders", orders)
		},
		// Without its controller, the Knative Subscription does not become ready.
		Break: func(_ context.Context, t testing.TB) func() {
			t.Helper()
			w.mesh.Stop()
			return func() {
				var err error
				if w.plane.mesh, err = standin.StartMesh(context.Background(), w.Config(), standin.Options{}); err != nil {
					t.Error(err)
				}
			}
		},
	}
}

// TestSuite is what every change of every job must pass.
func TestSuite(t *testing.T) { suite.Quick(t, on(t).repairs()) }

// TestSome: of many instances those are recreated that need it, one at a time;
// nobody touches the others. make soak does it with 30 of 200.
func TestSome(t *testing.T) { someOf(t, 40, 6) }

func someOf(t *testing.T, all, lacking int) {
	t.Helper()
	offered := make([]standin.AppService, all)
	for i := range offered {
		offered[i] = standin.AppService{ID: fmt.Sprintf("service-%03d", i), Events: true, API: i%5 == 0}
	}
	w := with(t, standin.ApplicationBrokerOptions{}, offered...)
	// Two at once would make the Knative Subscription twice.
	w.instance(offered[0].ID, offered[0].ID)
	group, ctx := errgroup.WithContext(w.ctx)
	group.SetLimit(8)
	for _, service := range offered[1:] {
		group.Go(func() error {
			_, err := w.client.Resource(standin.ServiceInstances).Namespace(ns).Create(ctx, standin.ServiceInstance(ns, service.ID, service.ID), metav1.CreateOptions{})
			return err
		})
	}
	w.check(group.Wait())
	for _, service := range offered {
		w.untilReady(standin.ServiceInstances, service.ID)
	}
	for _, service := range offered {
		if service.API {
			w.bind(service.ID, service.ID)
		}
	}
	before := w.census()
	work := map[string]bool{}
	for i := range lacking {
		name := offered[i*all/lacking].ID
		work[name] = true
		w.delete(standin.EventActivations, ns, name)
	}
	kinds := []schema.GroupVersionResource{standin.ServiceInstances, standin.ServiceBindings, standin.ServiceBindingUsages}
	versions := map[string]string{}
	for _, kind := range kinds {
		for _, u := range w.list(kind, ns, "") {
			versions[u.GetKind()+u.GetName()] = u.GetResourceVersion()
		}
	}
	mark, err := w.Mark(w.ctx)
	w.check(err)
	report := w.succeeds(migration.Succeeded, "--strategy=recreate", "--timeout=1h")
	t.Logf("%s in %.0f s", report.Message, report.Seconds)

	for _, kind := range kinds {
		for _, u := range w.list(kind, ns, "") {
			if touched := versions[u.GetKind()+u.GetName()] != u.GetResourceVersion(); touched != work[u.GetName()] {
				t.Errorf("%s %s was touched: %t, want %t", u.GetKind(), u.GetName(), touched, work[u.GetName()])
			}
		}
	}
	if diff := cmp.Diff(before, w.census()); diff != "" {
		t.Errorf("lost or changed (-before +after):\n%s", diff)
	}
	requests, err := w.Requests(w.ctx, mark, kubernetes.All(kubernetes.By("serviceinstance-recreate"), kubernetes.IsWrite, func(r kubernetes.Request) bool {
		return strings.HasSuffix(r.Resource, "/serviceinstances") && r.Code < 300
	}))
	w.check(err)
	slices.SortFunc(requests, func(a, b kubernetes.Request) int { return a.Received.Compare(b.Received) })
	if len(requests) != 2*lacking {
		t.Errorf("%d writes of instances, want %d", len(requests), 2*lacking)
	}
	var until time.Time
	for i := 0; i+1 < len(requests); i += 2 {
		gone, back := requests[i], requests[i+1]
		if gone.Verb != "delete" || back.Verb != "create" || gone.Received.Before(until) {
			t.Fatalf("not one at a time: %s, then %s", gone, back)
		}
		until = back.Completed
	}
}
