// Package kubectleventing_test tests kubectl eventing on a real API server. The tests play the
// controller's API and the publisher, which have no pods there.
package kubectleventing_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	eventingmanager "github.com/kyma-project/eventmesh-migration/charts/eventing-manager"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

const program = "./cmd/kubectl-eventing"

// cluster is the one control plane of this package's tests.
var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) {
	// The tests write the status of workloads.
	kubernetes.Main(m, kubernetes.With(kubernetes.Controllers("garbage-collector-controller", "namespace-controller", "serviceaccount-controller")), kubernetes.Shared(&cluster), kubernetes.Before(func(ctx context.Context) error {
		return cluster.InstallCRDFiles(ctx, eventingmanager.CRDs, "crds")
	}))
}

type outcome struct {
	code           int
	stdout, stderr string
}

// called runs the program as a person does.
func called(t *testing.T, kubeconfig string, args ...string) outcome {
	t.Helper()
	p := process.Run(t, process.Program{
		Binary: process.BuildPlain(t, program), Args: args, Dir: t.TempDir(), Env: []string{"KUBECONFIG=" + kubeconfig, "PATH=" + os.Getenv("PATH")},
	})
	return outcome{p.Wait(), p.Stdout(), p.Stderr()}
}

func run(t *testing.T, args ...string) outcome {
	t.Helper()
	return called(t, cluster.Kubeconfig, args...)
}

// want checks the exit code and what is printed.
func (o outcome) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if o.code != code {
		t.Errorf("exit code %d, want %d", o.code, code)
	}
	for _, text := range texts {
		if all := o.stdout + o.stderr; !strings.Contains(all, text) && !strings.Contains(strings.Join(strings.Fields(all), " "), text) {
			t.Errorf("no %q", text)
		}
	}
	if t.Failed() {
		t.Logf("stdout:\n%s\nstderr:\n%s", o.stdout, o.stderr)
	}
}

// resources are those of the kinds that the tests create.
var resources = map[string]schema.GroupVersionResource{
	"Namespace": {Version: "v1", Resource: "namespaces"}, "ConfigMap": {Version: "v1", Resource: "configmaps"}, "Secret": {Version: "v1", Resource: "secrets"},
	"Deployment": {Group: "apps", Version: "v1", Resource: "deployments"}, "StatefulSet": {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"Eventing":     {Group: "operator.kyma-project.io", Version: "v1alpha1", Resource: "eventings"},
	"Subscription": {Group: "eventing.kyma-project.io", Version: "v1alpha2", Resource: "subscriptions"},
	"StorageClass": {Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"},
}

// put creates an object, and writes its status. It is deleted at the end of the test.
func put(t *testing.T, text string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	of := client.Resource(resources[u.GetKind()]).Namespace(u.GetNamespace())
	status, has := u.Object["status"]
	made, err := of.Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil && !(apierrors.IsAlreadyExists(err) && u.GetKind() == "Namespace") {
		t.Fatal(err)
	}
	if u.GetKind() != "Namespace" {
		t.Cleanup(func() {
			if err := of.Delete(context.WithoutCancel(t.Context()), u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
	if has {
		made.Object["status"] = status
		if _, err := of.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func ago(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }

// install is an Eventing in a state, with the programs that it needs.
func install(t *testing.T, state, conditions string) {
	t.Helper()
	put(t, `{apiVersion: v1, kind: Namespace, metadata: {name: kyma-system}}`)
	put(t, `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}`)
	put(t, fmt.Sprintf(`
apiVersion: operator.kyma-project.io/v1alpha1
kind: Eventing
metadata: {namespace: kyma-system, name: eventing}
spec: {backend: {type: NATS, config: {natsStreamReplicas: 1}}}
status:
  state: %s
  activeBackend: NATS
  publisherService: eventing-publisher-proxy.kyma-system
  nats: {messages: 1204, bytes: 12582912, servers: 1, storage: File}
  conditions:
  - {type: Served, status: "True", reason: Served, message: "", lastTransitionTime: "2026-01-31T11:00:00Z"}
%s`, state, conditions))
	for _, name := range []string{"eventing-manager", "eventing-publisher-proxy", "eventing-controller"} {
		put(t, workload("Deployment", name, `strategy: {type: RollingUpdate}`))
	}
	put(t, workload("StatefulSet", "eventing-nats", `serviceName: x`))
}

func workload(kind, name, more string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {namespace: kyma-system, name: %s, labels: {app.kubernetes.io/part-of: eventing-manager}}
spec:
  replicas: 1
  %s
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: x, env: [{name: PASSWORD, value: hunter2}]}]}}
status: {replicas: 1, readyReplicas: 1}
`, kind, name, more)
}

const good = `{type: Subscription spec valid, status: "True"}, {type: Subscription active, status: "True"}, {type: Sink delivering, status: "True", reason: Delivering}`

// subscription is one with these conditions and, if they are given, the numbers of its delivery.
func subscription(t *testing.T, name, conditions string, numbers ...string) {
	t.Helper()
	delivery := ""
	if len(numbers) > 0 {
		delivery = ", delivery: " + numbers[0]
	}
	put(t, fmt.Sprintf(`
apiVersion: eventing.kyma-project.io/v1alpha2
kind: Subscription
metadata: {namespace: shop, name: %s}
spec: {source: commerce, types: [%s.created.v1], sink: "http://%s.shop.svc.cluster.local"}
status: {ready: %t, types: [], conditions: [%s]%s}`, name, name, name, !strings.Contains(conditions, "validation errors"), conditions, delivery))
}

// played is a server with a certificate that nobody has signed.
func played(t *testing.T, handler http.HandlerFunc) (flags []string) {
	t.Helper()
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	sum := sha256.Sum256(s.Certificate().Raw)
	return []string{"--controller=" + s.URL, "--controller-certificate=" + hex.EncodeToString(sum[:])}
}
