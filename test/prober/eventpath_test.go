//go:build slow || soak

package prober_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/migration"
	"github.com/kyma-project/eventmesh-migration/test/controlplane"
	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/kyma"
	"github.com/kyma-project/eventmesh-migration/test/prober"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

const (
	patience = 2 * time.Minute
	// perStep is how many events are accepted in each step, at least.
	perStep = 100

	careful, careless, hasty = "app-0001", "app-0002", "app-0003"
)

// cluster is a Kyma 1.10 whose events really flow, on a real API server.
type cluster struct {
	*controlplane.ControlPlane
	client dynamic.Interface
	mesh   *kyma.Mesh
	path   *kyma.EventPath

	mu       sync.Mutex
	services map[string]*eventservice.Process // by Application, the last one started
}

// TestEventPath sends events through the whole path of Kyma 1.10 while one
// Application is migrated by the real trigger-sync and event-service, in the right
// order, and its pods are killed and replaced: none is lost. Of two others the Kyma
// Subscription is deleted too early, before the event-service is switched, as Kyma
// 1.11's own migration did, and before its events are delivered: the prober finds
// what that costs.
func TestEventPath(t *testing.T) {
	if testing.Short() {
		t.Skip("this test needs a real API server, which -short leaves out")
	}
	var subscribers demux
	c := startCluster(t, &subscribers)

	t.Run("ContractBeforeTheSwitch", func(t *testing.T) {
		p := c.probe(t, &subscribers, careless, "paid.crm", "order.paid", func(step stepper) {
			step("before")
			step("contract before the switch")
			c.delete(t, kyma.KymaSubscriptions, "crm", "paid")
			step("after")
		})
		short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := p.Await(short); err == nil {
			t.Error("no event is missing although nobody was subscribed")
		}
		r := p.Report()
		t.Logf("the prober's report:\n%s", r)
		// The first few may still have met the Channel.
		if len(r.Missing) < perStep/2 {
			t.Errorf("%d events are missing; nearly all of the last step, which had %d or more, must be", len(r.Missing), perStep)
		}
		for i := range r.Missing {
			if r.Missing[i].Step == "start" {
				t.Errorf("missing from before the mistake: %s", &r.Missing[i])
			}
		}
	})

	t.Run("ContractBeforeTheDrain", func(t *testing.T) {
		subscriber := subscribers.byHost["slow.crm"].(*swap)
		p := c.probe(t, &subscribers, hasty, "slow.crm", "order.paid", func(step stepper) {
			step("before")
			subscriber.set(nil) // it is down, and NATS Streaming keeps its events
			step("subscriber down")
			c.switchToMesh(t, hasty)
			c.delete(t, kyma.KymaSubscriptions, "crm", "slow")
			c.await(t, func(m *kyma.Mesh) bool { return m.Has(kyma.KymaSubscriptions, 1) })
		})
		subscriber.set(p)
		short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := p.Await(short); err == nil {
			t.Error("no event is missing although those in flight were dropped")
		}
		r := p.Report()
		t.Logf("the prober's report:\n%s", r)
		blamed := 0
		for i := range r.Missing {
			if r.Missing[i].Step == "subscriber down" {
				blamed++
			}
		}
		if blamed < perStep {
			t.Errorf("%d events are missing of the time when the subscriber was down; all, %d or more, must be", blamed, perStep)
		}
	})

	t.Run("ExpandSwitchContract", func(t *testing.T) {
		p := c.probe(t, &subscribers, careful, "orders.shop", "order.created", func(step stepper) {
			step("expand")
			c.triggerSync(t, migration.DeferredResult)
			step("between")
			step("switch")
			c.switchToMesh(t, careful)
			step("on the mesh")
			step("pod replaced")
			c.path.Replace(careful)
			step("no pod", func() {
				c.service(careful).Kill()
				time.Sleep(500 * time.Millisecond) // clients get errors, and repeat
				c.path.Replace(careful)
			})
			step("contract")
			c.triggerSync(t, migration.Succeeded)
			step("after")
		})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := p.Await(ctx); err != nil {
			t.Error(err)
		}
		r := p.Report()
		t.Logf("the prober's report:\n%s", r)
		if len(r.Missing) > 0 || len(r.GivenUp) > 0 {
			t.Errorf("events were lost:\n%s", r)
		}
	})
}

// demux hands what is delivered to the prober of that endpoint.
type demux struct{ byHost map[string]http.Handler }

func (d *demux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	if h := d.byHost[host]; h != nil {
		h.ServeHTTP(w, r)
	}
}

// stepper begins a step, does something, and returns when events were accepted.
type stepper func(name string, do ...func())

// probe sends events for an Application while during goes through its steps, in
// each of which events are accepted.
func (c *cluster) probe(t *testing.T, subscribers *demux, app, endpoint, eventType string, during func(stepper)) *prober.Prober {
	t.Helper()
	p := prober.New([]prober.Target{{Application: app, URL: c.path.URL(app), EventType: eventType}}, prober.Options{})
	subscribers.byHost[endpoint].(*swap).set(p)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sending, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(sending)
	}()
	accept := func() {
		if err := p.AwaitAccepted(ctx, perStep); err != nil {
			t.Fatal(err)
		}
	}
	accept()
	during(func(name string, do ...func()) {
		p.Step(name)
		for _, f := range do {
			f()
		}
		accept()
	})
	stop()
	<-done
	return p
}

func startCluster(t *testing.T, subscribers *demux) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	plane, err := controlplane.Start(ctx, controlplane.Controllers("garbage-collector-controller", "namespace-controller", "serviceaccount-controller"))
	check(err)
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	if !plane.Own() {
		t.Skip("this test needs a cluster without a controller of Deployments")
	}
	check(plane.InstallCRDs(ctx, controlplane.KnativeV1alpha1))
	c := &cluster{ControlPlane: plane, services: map[string]*eventservice.Process{}}
	c.client, err = dynamic.NewForConfig(plane.Config())
	check(err)
	controllers, err := kyma.Start(t.Context(), plane.Config(), kyma.Options{})
	check(err)
	t.Cleanup(controllers.Stop)
	_, err = kyma.Put(ctx, plane.Config(), 3)
	check(err)
	for _, name := range []string{"shop", "crm"} {
		c.create(t, kyma.Namespaces, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}})
	}
	check(kyma.PutHTTPSources(ctx, plane.Config(), careful, careless, hasty))
	check(kyma.Load(ctx, plane.Config(), append(kyma.EventBus(), kyma.EventService(careful, false), kyma.EventService(careless, false), kyma.EventService(hasty, false))...))
	c.mesh, err = kyma.StartMesh(t.Context(), plane.Config(), kyma.Options{})
	check(err)
	t.Cleanup(c.mesh.Stop)
	check(controllers.WaitReady(ctx, careful, careless, hasty))
	links := schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "subscriptions"}
	c.create(t, links, kyma.Link("v1alpha1", careful, "shop", "brokersub-shop"))
	for _, s := range []struct{ namespace, name, app, eventType string }{{"shop", "orders", careful, "order.created"}, {"crm", "paid", careless, "order.paid"}, {"crm", "slow", hasty, "order.paid"}} {
		u := kyma.KymaSubscription(s.namespace, s.name, s.app, s.eventType)
		unstructured.RemoveNestedField(u.Object, "spec", "include_subscription_name_header")
		c.create(t, kyma.KymaSubscriptions, u)
	}
	check(c.mesh.Wait(ctx, func(m *kyma.Mesh) bool {
		return m.Has(kyma.KymaSubscriptions, 3) && kyma.SubscriptionsReady(m) && kyma.LinksReady(m)
	}))

	subscribers.byHost = map[string]http.Handler{"orders.shop": &swap{}, "paid.crm": &swap{}, "slow.crm": &swap{}}
	binary := suite.Build(t, "./cmd/event-service")
	c.path, err = kyma.StartEventPath(t.Context(), plane.Config(), kyma.EventPathOptions{
		Subscriber: subscribers,
		EventService: func(ctx context.Context, app, meshURL string) (string, func(), error) {
			service, err := eventservice.Start(ctx, binary, nil, "--eventMeshURL="+meshURL, "--sourceId="+app, "--shutdownDelay=100ms")
			if err != nil {
				return "", nil, err
			}
			c.mu.Lock()
			c.services[app] = service
			c.mu.Unlock()
			return service.URL, func() {
				if err := service.Terminate(); err != nil {
					service.Kill()
				}
				<-service.Exited()
			}, nil
		},
	})
	check(err)
	t.Cleanup(c.path.Stop)
	check(c.path.Wait(ctx, func(p *kyma.EventPath) bool {
		return p.Subscribed(4) && p.Serving(careful) && p.Serving(careless) && p.Serving(hasty)
	}))
	return c
}

// service is the last pod of an Application's event-service.
func (c *cluster) service(app string) *eventservice.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.services[app]
}

func (c *cluster) await(t *testing.T, holds func(*kyma.Mesh) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.mesh.Wait(ctx, holds); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) create(t *testing.T, gvr schema.GroupVersionResource, u *unstructured.Unstructured) {
	t.Helper()
	if _, err := c.client.Resource(gvr).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) delete(t *testing.T, gvr schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	if err := c.client.Resource(gvr).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// switchToMesh does what application-operator and the controller of Deployments do.
func (c *cluster) switchToMesh(t *testing.T, app string) {
	t.Helper()
	spec, err := json.Marshal(map[string]any{"spec": kyma.EventService(app, true).Object["spec"]})
	if err != nil {
		t.Fatal(err)
	}
	deployments := c.client.Resource(kyma.Deployments).Namespace(kyma.IntegrationNamespace)
	changed, err := deployments.Patch(t.Context(), app+"-event-service", types.MergePatchType, spec, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.path.Wait(ctx, func(p *kyma.EventPath) bool { return p.OnMesh(app) }); err != nil {
		t.Fatalf("%s is not on the mesh: %v", app, err)
	}
	status := fmt.Sprintf(`{"status":{"observedGeneration":%d,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}`, changed.GetGeneration())
	if _, err := deployments.Patch(t.Context(), app+"-event-service", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// triggerSync runs the real job, which asks the real NATS Streaming what is in
// flight.
func (c *cluster) triggerSync(t *testing.T, want migration.Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, suite.Build(t, "./cmd/trigger-sync"), "run", "--kubeconfig="+c.Kubeconfig, "--output=json",
		"--log-format=json", "--lease-duration=1s", "--nats-monitoring-url="+c.path.MonitoringURL)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var report migration.Report
	if decoding := json.Unmarshal(stdout.Bytes(), &report); decoding != nil {
		t.Fatalf("no report: %v, %v\n%s", err, decoding, &stderr)
	}
	if err != nil || report.Result != want {
		t.Fatalf("trigger-sync ended with %v, result %s, want %s\n%s\n%s", err, report.Result, want, &stdout, &stderr)
	}
}
