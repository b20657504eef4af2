// Package trigger proves trigger-sync on a real API server, with the real program
// as a process of its own and stand-ins for Knative's and Kyma's controllers.
package trigger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// versions are those at which clusters serve Knative's kinds: Kyma 1.11 had
// v1alpha1 only, today's have v1 only.
var versions = []kubernetes.KnativeVersion{kubernetes.KnativeV1alpha1, kubernetes.KnativeV1}

// plane is one cluster for each version, shared by all tests of it. It has no
// controller of Deployments: tests write their status.
type plane struct {
	*kubernetes.ControlPlane
	version     kubernetes.KnativeVersion
	client      dynamic.Interface
	controllers *standin.Controllers
	mesh        *standin.Mesh
	nats        *monitoring
	// last is what the last process of run took.
	last measure.Usage
	// patience is how long a process and a wait may take; 0: suite's limit, and 30 seconds.
	patience time.Duration
}

var (
	planesMu sync.Mutex
	planes   = map[kubernetes.KnativeVersion]*plane{}
)

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.After(func() error {
		var errs []error
		for _, p := range planes {
			p.mesh.Stop()
			p.controllers.Stop()
			p.nats.Close()
			errs = append(errs, p.Stop())
		}
		return errors.Join(errs...)
	}))
}

const (
	app      = "app-0001"
	otherApp = "app-0002"
)

// on returns the cluster of a version, with two Applications whose events the
// mesh takes, the namespaces shop (which has no Broker yet) and crm (which has),
// and nothing of a former test.
func on(t *testing.T, version kubernetes.KnativeVersion) *plane {
	t.Helper()
	planesMu.Lock()
	defer planesMu.Unlock()
	p := planes[version]
	if p == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
		defer cancel()
		var err error
		if p, err = start(ctx, version); err != nil {
			t.Fatal(err)
		}
		planes[version] = p
	}
	p.reset(t.Context(), t)
	return p
}

func start(ctx context.Context, version kubernetes.KnativeVersion) (_ *plane, err error) {
	p := &plane{version: version} // not the result, which is nil when it fails
	if p.ControlPlane, err = kubernetes.Start(ctx, kubernetes.Controllers("garbage-collector-controller", "namespace-controller", "serviceaccount-controller")); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	if err := p.InstallCRDs(ctx, version); err != nil {
		return nil, err
	}
	if p.client, err = dynamic.NewForConfig(p.Config()); err != nil {
		return nil, err
	}
	// The controllers outlive this test.
	if p.controllers, err = standin.Start(context.Background(), p.Config(), standin.Options{}); err != nil {
		return nil, err
	}
	if _, err := standin.Put(ctx, p.Config(), 2); err != nil {
		return nil, err
	}
	for _, name := range []string{"knative-eventing", "natss", "shop", "crm"} {
		ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
		if _, err := p.client.Resource(standin.Namespaces).Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	if p.mesh, err = standin.StartMesh(context.Background(), p.Config(), standin.Options{ControllerPods: true}); err != nil {
		return nil, err
	}
	if err := standin.PutHTTPSources(ctx, p.Config(), app, otherApp); err != nil {
		return nil, err
	}
	if err := standin.Load(ctx, p.Config(), standin.EventBus()...); err != nil {
		return nil, err
	}
	if err := p.controllers.WaitReady(ctx, app, otherApp); err != nil {
		return nil, err
	}
	p.nats = newMonitoring(p)
	return p, nil
}

// Resources whose version is the cluster's choice, and those that a Broker brings.
func (p *plane) triggers() schema.GroupVersionResource { return p.knative("eventing", "triggers") }
func (p *plane) brokers() schema.GroupVersionResource  { return p.knative("eventing", "brokers") }
func (p *plane) links() schema.GroupVersionResource    { return p.knative("messaging", "subscriptions") }
func (p *plane) channels() schema.GroupVersionResource { return p.knative("messaging", "channels") }

func (p *plane) knative(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group + ".knative.dev", Version: string(p.version), Resource: resource}
}

var (
	roleBindings    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	leases          = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	secrets         = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// reset takes away what a test or a run of the job left: it is called often.
func (p *plane) reset(ctx context.Context, t testing.TB) {
	t.Helper()
	p.mesh.HealAll()
	p.nats.set(nil)
	p.scale(ctx, t, 0) // or it would make anew what is removed
	p.unlabel(ctx, t)
	for _, gvr := range []schema.GroupVersionResource{standin.KymaSubscriptions, standin.EventActivations, p.triggers(), p.brokers(), p.links(), roleBindings, serviceAccounts} {
		p.clear(ctx, t, gvr, "")
	}
	p.clear(ctx, t, p.channels(), standin.SystemNamespace)
	for _, gvr := range []schema.GroupVersionResource{leases, secrets, standin.ConfigMaps} {
		p.clear(ctx, t, gvr, standin.SystemNamespace)
	}
	p.scale(ctx, t, 1)
	p.wait(ctx, t, "the cluster is empty", (*standin.Mesh).Empty)
}

// wait waits for the controllers.
func (p *plane) wait(ctx context.Context, t testing.TB, what string, holds func(*standin.Mesh) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.patience, poll.Within(30*time.Second)))
	defer cancel()
	if err := p.mesh.Wait(ctx, holds); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// clear removes all objects of a kind, whatever holds them, but for what the
// control plane has made itself.
func (p *plane) clear(ctx context.Context, t testing.TB, gvr schema.GroupVersionResource, namespace string) {
	t.Helper()
	list, err := p.client.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		u := &list.Items[i]
		switch u.GetNamespace() {
		case "kube-system", "kube-public", "default":
			continue
		}
		secretType, _, _ := unstructured.NestedString(u.Object, "type")
		if gvr == serviceAccounts && u.GetName() == "default" || gvr == secrets && secretType == "kubernetes.io/service-account-token" || gvr == standin.ConfigMaps && u.GetName() == "kube-root-ca.crt" {
			continue
		}
		resource := p.client.Resource(gvr).Namespace(u.GetNamespace())
		if len(u.GetFinalizers()) > 0 {
			p.patch(ctx, t, gvr, u.GetNamespace(), u.GetName(), `{"metadata":{"finalizers":null}}`)
		}
		if err := resource.Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

func (p *plane) patch(ctx context.Context, t testing.TB, gvr schema.GroupVersionResource, namespace, name, patch string, subresources ...string) {
	t.Helper()
	_, err := p.client.Resource(gvr).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// scale sets the replicas of the subscription-controller.
func (p *plane) scale(ctx context.Context, t testing.TB, replicas int) {
	t.Helper()
	p.patch(ctx, t, standin.Deployments, standin.SystemNamespace, standin.SubscriptionController, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	p.wait(ctx, t, "the controller is told", func(m *standin.Mesh) bool { return m.ControllerRuns() == (replicas > 0) })
}

// observe plays the controller of the Event Bus's Deployments until the test ends:
// it takes notice of their replicas. No pod ever runs.
func (p *plane) observe(ctx context.Context, t testing.TB) {
	t.Helper()
	deployments := p.client.Resource(standin.Deployments).Namespace(standin.SystemNamespace)
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	t.Cleanup(func() { cancel(); done.Wait() })
	list, err := deployments.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := deployments.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	done.Go(func() {
		defer events.Stop()
		for e := range events.ResultChan() {
			u, ok := e.Object.(*unstructured.Unstructured)
			observed := int64(0)
			if ok {
				observed, _, _ = unstructured.NestedInt64(u.Object, "status", "observedGeneration")
			}
			if !ok || e.Type != watch.Modified || observed >= u.GetGeneration() {
				continue
			}
			replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
			status := fmt.Sprintf(`{"status":{"observedGeneration":%d,"replicas":%d,"updatedReplicas":%[2]d,"readyReplicas":%[2]d,"availableReplicas":%[2]d}}`, u.GetGeneration(), replicas)
			if _, err := deployments.Patch(ctx, u.GetName(), types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
}

func (p *plane) unlabel(ctx context.Context, t testing.TB) {
	t.Helper()
	for _, name := range []string{"shop", "crm"} {
		_, err := p.client.Resource(standin.Namespaces).Patch(ctx, name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"knative-eventing-injection":null},"annotations":null}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (p *plane) create(ctx context.Context, t testing.TB, gvr schema.GroupVersionResource, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, u := range objects {
		if _, err := p.client.Resource(gvr).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// load puts the state before the migration: Subscriptions of both namespaces, with what the Event
// Bus makes of them, the Broker of crm, and the links and EventActivations of both Applications in
// both namespaces. On the mesh: all event-services have switched.
func (p *plane) load(ctx context.Context, t testing.TB, onMesh bool, subscriptions ...*unstructured.Unstructured) {
	t.Helper()
	broker := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": p.brokers().GroupVersion().String(), "kind": "Broker", "metadata": map[string]any{"name": "default", "namespace": "crm"}, "spec": map[string]any{},
	}}
	p.create(ctx, t, p.brokers(), broker)
	for _, name := range []string{app, otherApp} {
		for _, namespace := range []string{"shop", "crm"} {
			p.create(ctx, t, p.links(), standin.Link(string(p.version), name, namespace, "brokersub-"+name+"-"+namespace))
			activation := standin.EventActivation(namespace, name+"-events", name)
			activation.SetFinalizers(nil)
			p.create(ctx, t, standin.EventActivations, activation)
		}
		p.eventService(ctx, t, name, onMesh)
	}
	p.create(ctx, t, standin.KymaSubscriptions, subscriptions...)
	p.wait(ctx, t, "the Event Bus knows every Subscription", func(m *standin.Mesh) bool {
		return m.Has(standin.KymaSubscriptions, len(subscriptions)) && standin.SubscriptionsReady(m)
	})
}

// eventService puts an event-service in place, all rolled out.
func (p *plane) eventService(ctx context.Context, t testing.TB, name string, onMesh bool) {
	t.Helper()
	resource := p.client.Resource(standin.Deployments).Namespace(standin.IntegrationNamespace)
	u := standin.EventService(name, onMesh)
	if err := resource.Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	p.create(ctx, t, standin.Deployments, u)
	p.patch(ctx, t, standin.Deployments, standin.IntegrationNamespace, u.GetName(),
		`{"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}`, "status")
}

// subscription is one of the Event Bus for the source app.
func subscription(namespace, name, eventType string, edits ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := standin.KymaSubscription(namespace, name, app, eventType)
	unstructured.RemoveNestedField(u.Object, "spec", "include_subscription_name_header")
	u.SetFinalizers(nil)
	for _, edit := range edits {
		edit(u)
	}
	return u
}

func from(source string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.Object["spec"].(map[string]any)["source_id"] = source }
}

func (p *plane) names(ctx context.Context, t testing.TB, gvr schema.GroupVersionResource, namespace string) []string {
	t.Helper()
	list, err := p.client.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].GetNamespace()+"/"+list.Items[i].GetName())
	}
	return names
}

// run runs the job and returns its report and exit code.
func (p *plane) run(t testing.TB, command string, args ...string) (*migration.Report, int) {
	t.Helper()
	// Of the same two flags, the last counts.
	return p.runJob(t, "trigger-sync", append([]string{command, "--nats-monitoring-url=" + p.nats.URL, "--observe-publishers=0s"}, args...)...)
}

// runJob runs any job: the command is the first of args.
func (p *plane) runJob(t testing.TB, job string, args ...string) (*migration.Report, int) {
	t.Helper()
	ended := suite.Run(t, process.Program{
		Binary: process.Build(t, "./cmd/"+job),
		Args:   slices.Concat(args, []string{"--kubeconfig=" + p.Kubeconfig, "--output=json", "--log-format=json", "--lease-duration=1s"}),
		Limit:  p.patience, Measured: true,
	})
	p.last = ended.Usage()
	return ended.Report()
}

// monitoring is the monitoring port of NATS Streaming: it knows the durable
// subscription of every Knative Subscription of the Event Bus.
type monitoring struct {
	*httptest.Server
	mu sync.Mutex
	// pending messages by the name of the Knative Subscription.
	pending map[string]int
	down    bool
	// published is the beginning of the names of Channels that get an event, which is
	// delivered at once, each time somebody asks; asked is how often that was.
	published string
	asked     int
}

func newMonitoring(p *plane) *monitoring {
	m := &monitoring{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list, err := p.client.Resource(p.links()).Namespace(standin.SystemNamespace).List(r.Context(), metav1.ListOptions{})
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil || m.down {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		m.asked++
		sequence := func(channel string) int {
			if m.published != "" && strings.HasPrefix(channel, m.published) {
				return 7 + m.asked
			}
			return 7
		}
		var channels []any
		byChannel := map[string][]any{}
		for i := range list.Items {
			u := &list.Items[i]
			channel, _, _ := unstructured.NestedString(u.Object, "spec", "channel", "name")
			byChannel[channel] = append(byChannel[channel], map[string]any{
				"durable_name": string(u.GetUID()), "is_durable": true, "last_sent": sequence(channel), "pending_count": m.pending[u.GetName()],
			})
		}
		for channel, subscriptions := range byChannel {
			channels = append(channels, map[string]any{
				"name": channel + "." + standin.SystemNamespace, "msgs": 7, "first_seq": 1, "last_seq": sequence(channel), "subscriptions": subscriptions,
			})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"server_id": "test", "count": len(channels), "total": len(channels), "channels": channels})
	}))
	return m
}

func (m *monitoring) set(pending map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending, m.down, m.published = pending, false, ""
}

// publish lets somebody publish to the Channels whose names begin so.
func (m *monitoring) publish(channels string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.published = channels
}

func (m *monitoring) fail() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = true
}
