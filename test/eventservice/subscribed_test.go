package eventservice_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// readTriggers is what the chart allows the service.
var readTriggers = rbacv1.PolicyRule{APIGroups: []string{"eventing.knative.dev"}, Resources: []string{"triggers"}, Verbs: []string{"list"}}

// startOn runs the event-service on a cluster.
func startOn(t *testing.T, kubeconfig string) *eventservice.Process {
	t.Helper()
	p, err := eventservice.Start(t.Context(), process.Build(t, "./cmd/event-service"), []string{"KUBECONFIG=" + kubeconfig},
		"--eventMeshURL=http://127.0.0.1:1", "--sourceId=shop", "--requestTimeout=30", "--shutdownDelay=0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// TestSubscribed: what is subscribed is read from the Triggers of a real API
// server, at the version that Kyma 1.11 served and with no more rights than the
// chart gives.
func TestSubscribed(t *testing.T) {
	if testing.Short() {
		t.Skip("this test needs a real API server, which -short leaves out")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cluster, err := kubernetes.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := cluster.InstallCRDs(ctx, kubernetes.KnativeV1alpha1, kubernetes.Kinds("triggers.eventing.knative.dev")); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	triggers := client.Resource(schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1alpha1", Resource: "triggers"})
	empty := func(namespace string) {
		if err := triggers.Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	empty("default")
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "eventservice-other"}}}
	if _, err := namespaces.Create(ctx, other, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	empty(other.GetName())
	for i, tr := range []struct{ namespace, broker, source, kind, version string }{
		{"default", "default", "shop", "order.created", "v1"},
		{"default", "own", "shop", "order.created", "v2"},
		{other.GetName(), "default", "shop", "order.created", "v1"}, // again
		{other.GetName(), "default", "shop", "basket.left", "v1"},
		{other.GetName(), "default", "shop-2", "order.created", "v9"},
	} {
		trigger := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "eventing.knative.dev/v1alpha1", "kind": "Trigger", "metadata": map[string]any{"name": fmt.Sprintf("t-%d", i)},
			"spec": map[string]any{
				"broker":     tr.broker,
				"filter":     map[string]any{"attributes": map[string]any{"source": tr.source, "type": tr.kind, "eventtypeversion": tr.version}},
				"subscriber": map[string]any{"uri": "http://subscriber.default"},
			},
		}}
		if _, err := triggers.Namespace(tr.namespace).Create(ctx, trigger, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	kubeconfig, err := cluster.User(ctx, "event-service", readTriggers)
	if err != nil {
		t.Fatal(err)
	}
	service := startOn(t, kubeconfig)
	event := func(name, version string) any { return map[string]any{"name": name, "version": version} }
	for _, tc := range []struct {
		reason, application string
		want                []any
	}{
		{"each event once, of every namespace and Broker, sorted", "shop", []any{event("basket.left", "v1"), event("order.created", "v1"), event("order.created", "v2")}},
		{"the application in the path decides, not our own", "shop-2", []any{event("order.created", "v9")}},
		{"nothing is an empty list", "nobody", []any{}},
	} {
		got := mustSend(t, http.MethodGet, service.URL+"/"+tc.application+"/v1/events/subscribed", "", nil)
		if diff := cmp.Diff(map[string]any{"eventsInfo": tc.want}, got.body); got.status != 200 || diff != "" {
			t.Errorf("%s: %d (-want +got):\n%s", tc.reason, got.status, diff)
		}
	}

	// Many calls, at once and one after the other, cost the API server few lists. Fails
	// on the commit before: 200 calls made more than a hundred.
	mark, err := cluster.Mark(ctx)
	if cluster.Own() && err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	const callers, calls = 20, 10
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range calls {
				got, err := send(ctx, http.MethodGet, service.URL+"/shop/v1/events/subscribed", nil, nil)
				if err != nil || got.status != 200 {
					t.Errorf("%v %s", err, got)
				}
			}
		})
	}
	all.Wait()
	if cluster.Own() {
		requests, err := cluster.Requests(ctx, mark, kubernetes.By("event-service"))
		if err != nil {
			t.Fatal(err)
		}
		// One list for each ten seconds that this has taken.
		if most := 2 + int(time.Since(began)/(10*time.Second)); len(requests) > most {
			t.Errorf("%d calls made %d requests, want at most %d", callers*calls, len(requests), most)
		}
	}

	// A new Trigger is seen some seconds later.
	trigger, err := triggers.Namespace("default").Get(ctx, "t-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fresh := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": trigger.GetAPIVersion(), "kind": trigger.GetKind(), "metadata": map[string]any{"name": "fresh"}, "spec": trigger.Object["spec"],
	}}
	if err := unstructured.SetNestedField(fresh.Object, "fresh", "spec", "filter", "attributes", "source"); err != nil {
		t.Fatal(err)
	}
	if _, err := triggers.Namespace("default").Create(ctx, fresh, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, patience, "the new Trigger is seen", func(context.Context) error {
		got := mustSend(t, http.MethodGet, service.URL+"/fresh/v1/events/subscribed", "", nil)
		if len(got.body["eventsInfo"].([]any)) != 1 {
			return fmt.Errorf("answer: %s", got)
		}
		return nil
	})

	// Without the right to read Triggers it is an error. Which one says the log, not the
	// answer.
	blind, err := cluster.User(ctx, "blind")
	if err != nil {
		t.Fatal(err)
	}
	blinded := startOn(t, blind)
	for range 3 {
		got := mustSend(t, http.MethodGet, blinded.URL+"/shop/v1/events/subscribed", "", nil)
		want := map[string]any{"code": 500.0, "error": "cannot tell what is subscribed"}
		if diff := cmp.Diff(want, got.body); got.status != 500 || diff != "" {
			t.Errorf("%d (-want +got):\n%s", got.status, diff)
		}
	}
	if log := blinded.Log(); !strings.Contains(log, "cannot list Triggers") || !strings.Contains(log, "forbidden") {
		t.Errorf("the log does not say why:\n%s", log)
	}
	empty("default")
	empty(other.GetName())
}

// TestSubscribedWithoutAPIServer: it is an error, soon, and events are taken all the
// same.
func TestSubscribedWithoutAPIServer(t *testing.T) {
	t.Parallel()
	raw := `{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x"}}],` +
		`"clusters":[{"name":"x","cluster":{"server":"http://127.0.0.1:1"}}]}`
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := clientcmd.LoadFromFile(path); err != nil {
		t.Fatal(err)
	}
	adapter := newAdapter(t)
	service, err := eventservice.Start(t.Context(), process.Build(t, "./cmd/event-service"), []string{"KUBECONFIG=" + path},
		"--eventMeshURL="+adapter.URL, "--sourceId=shop", "--requestTimeout=10")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Kill)
	got := mustSend(t, http.MethodGet, service.URL+"/shop/v1/events/subscribed", "", nil)
	if text := fmt.Sprint(got.body["error"]); got.status != 500 || got.header.Get("Retry-After") != "2" || text != "cannot tell what is subscribed" {
		t.Errorf("%s", got)
	}
	if got := mustSend(t, http.MethodPost, service.URL+eventsV1, v1(nil), nil); got.status != 200 {
		t.Errorf("%s", got)
	}
}
