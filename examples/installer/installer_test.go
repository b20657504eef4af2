package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.org/installer/ingressclass"
	"example.org/installer/relabel"

	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/pkg/migrationtest"
)

// kubeconfigVariable names a kubeconfig of a cluster that these tests may change. KUBECONFIG would
// name one that is in use.
const kubeconfigVariable = "INSTALLER_TEST_KUBECONFIG"

// cluster is the way to the API server that the tests use.
var cluster *rest.Config

// TestMain uses nothing of the test packages of eventmesh-migration: what is in this directory can
// be copied, and works.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: these tests need a real API server, which -short leaves out")
		return
	}
	kubeconfig := os.Getenv(kubeconfigVariable)
	if kubeconfig == "" {
		fmt.Fprintf(os.Stderr, "set %s to the kubeconfig of a cluster that you can lose, or run the tests with -short\n", kubeconfigVariable)
		os.Exit(1)
	}
	var err error
	if cluster, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		fmt.Fprintf(os.Stderr, "cannot read the kubeconfig of %s: %v\n", kubeconfigVariable, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestIngressClassSurvives(t *testing.T) {
	migrationtest.Survives(t, rest.CopyConfig(cluster), migrationtest.Subject{
		Job:     func() migration.Job { return ingressclass.Job{} },
		Kinds:   []schema.GroupVersionResource{ingressclass.Ingresses.GroupVersionResource},
		Prepare: prepareIngresses,
		Done: func(ctx context.Context, client dynamic.Interface) error {
			for _, name := range []string{"web", "api"} {
				if err := hasClass(ctx, client, name); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

func TestRelabelSurvives(t *testing.T) {
	migrationtest.Survives(t, rest.CopyConfig(cluster), migrationtest.Subject{
		Job:     func() migration.Job { return relabel.Job{Namespace: "shop"} },
		Kinds:   []schema.GroupVersionResource{relabel.Deployments.GroupVersionResource},
		Prepare: prepareDeployments,
		Done: func(ctx context.Context, client dynamic.Interface) error {
			return errors.Join(isRelabelled(ctx, client, "orders"), isRelabelled(ctx, client, "cart"))
		},
	})
}

func TestInstall(t *testing.T) {
	ctx := t.Context()
	client, err := dynamic.NewForConfig(rest.CopyConfig(cluster))
	if err != nil {
		t.Fatal(err)
	}
	for _, prepare := range []func(context.Context, dynamic.Interface) error{prepareIngresses, prepareDeployments} {
		if err := prepare(ctx, client); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		reason     string
		components []string
		jobs       []jobmanager.Registration
		// want are parts of the error; none: it succeeds.
		want []string
		// done are the results and findings of the jobs, and those of the components.
		done []string
	}{
		{
			reason: "a job that fails stops its component, and no other one", components: []string{"gateway", "billing"},
			jobs: []jobmanager.Registration{{Job: failing{}, Hooks: []jobmanager.Hook{jobmanager.Before("gateway")}}},
			want: []string{"job failing (gateway/pre): "}, done: []string{"failing: failed", "gateway: not-started", "billing: deployed"},
		},
		{
			reason: "jobs migrate, and the components are installed on what they leave", components: components, jobs: jobs,
			done: []string{"ingress-class: succeeded", "relabel: succeeded", "gateway: deployed", "shop: deployed", "billing: deployed"},
		},
		{
			reason: "a second installation finds nothing to migrate", components: components, jobs: jobs,
			done: []string{"ingress-class: not-needed", "relabel: not-needed", "gateway: deployed", "shop: deployed", "billing: deployed"},
		},
	} {
		lines := make(chan string, 100)
		err := install(ctx, rest.CopyConfig(cluster), func(format string, args ...any) { lines <- fmt.Sprintf(format, args...) }, tc.components, tc.jobs)
		close(lines)
		if (err != nil) != (len(tc.want) > 0) {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is missing in: %v", tc.reason, part, err)
			}
		}
		got, want := map[string]bool{}, map[string]bool{}
		for line := range lines {
			subject, rest, _ := strings.Cut(line, ": ")
			result, _, _ := strings.Cut(rest, ":")
			got[subject+": "+result] = true
		}
		for _, line := range tc.done {
			want[line] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
	if err := errors.Join(isRelabelled(ctx, client, "orders"), isRelabelled(ctx, client, "cart"), hasClass(ctx, client, "web")); err != nil {
		t.Error(err)
	}
}

// TestSpeed: an installer with the configuration as it is read from a kubeconfig does not wait for
// the limit of client-go, 5 requests a second. With it, a job took 22 times as long.
func TestSpeed(t *testing.T) {
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprintf("web-%d", i)
	}
	unlimited := rest.CopyConfig(cluster)
	unlimited.QPS, unlimited.WarningHandler = -1, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(unlimited)
	if err != nil {
		t.Fatal(err)
	}
	if err := createIngresses(t.Context(), client, names...); err != nil {
		t.Fatal(err)
	}
	cfg := rest.CopyConfig(cluster)
	var requests atomic.Int32
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			return next.RoundTrip(r)
		})
	})
	began := time.Now()
	if err := install(t.Context(), cfg, t.Logf, components[:1], jobs[:1]); err != nil {
		t.Fatal(err)
	}
	took, limited := time.Since(began), time.Duration(requests.Load()/5)*time.Second
	if requests.Load() < int32(len(names)) || took > limited/3 {
		t.Errorf("%d requests took %s; at 5 a second they take %s", requests.Load(), took, limited)
	}
	for _, name := range names {
		if err := hasClass(t.Context(), client, name); err != nil {
			t.Fatal(err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// failing is a job that cannot plan.
type failing struct{}

func (failing) Name() string { return "failing" }

func (failing) Doc() (short, long string) { return "Fail.", "" }

func (failing) Plan(context.Context, *migration.Cluster, migration.PlanOptions) (*migration.Plan, error) {
	return nil, errors.New("cannot plan")
}

func (failing) Await(*migration.Change) []migration.Condition { return nil }

// prepareIngresses creates two Ingresses with the annotation.
func prepareIngresses(ctx context.Context, client dynamic.Interface) error {
	return createIngresses(ctx, client, "web", "api")
}

func createIngresses(ctx context.Context, client dynamic.Interface, names ...string) error {
	var wanted []*unstructured.Unstructured
	for _, name := range names {
		wanted = append(wanted, object("networking.k8s.io/v1", "Ingress", name, map[string]any{
			"annotations": map[string]any{ingressclass.Annotation: "gateway", "example.org/owner": "web team"},
		}, map[string]any{"defaultBackend": map[string]any{"service": map[string]any{"name": name, "port": map[string]any{"number": int64(80)}}}}))
	}
	return replace(ctx, client, ingressclass.Ingresses, wanted)
}

// prepareDeployments creates two Deployments with the former label. They have no pods, since
// the control plane has no nodes.
func prepareDeployments(ctx context.Context, client dynamic.Interface) error {
	var wanted []*unstructured.Unstructured
	for _, name := range []string{"orders", "cart"} {
		labels := map[string]any{relabel.Former: name}
		wanted = append(wanted, object("apps/v1", "Deployment", name, map[string]any{"labels": labels}, map[string]any{
			"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": name, "image": "example.org/" + name + ":1"}}},
			},
		}))
	}
	if err := replace(ctx, client, relabel.Deployments, wanted); err != nil {
		return err
	}
	// Their controller must be at rest: what it writes later would differ from what the plan has
	// read.
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := relabel.Deployments.In(client, "shop").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range list.Items {
			if conditions, _, _ := unstructured.NestedSlice(list.Items[i].Object, "status", "conditions"); len(conditions) < 2 {
				return false, nil
			}
		}
		return true, nil
	})
}

func object(apiVersion, kind, name string, metadata, spec map[string]any) *unstructured.Unstructured {
	metadata["name"], metadata["namespace"] = name, "shop"
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata, "spec": spec}}
	return obj.DeepCopy()
}

// replace makes these the only objects of the kind in the namespace shop.
func replace(ctx context.Context, client dynamic.Interface, kind migration.Resource, wanted []*unstructured.Unstructured) error {
	namespaces := migration.CoreResource("", "namespaces", "Namespace").In(client, "")
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}}
	if _, err := namespaces.Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	in := kind.In(client, "shop")
	if err := in.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	for _, obj := range wanted {
		if _, err := in.Create(ctx, obj, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func hasClass(ctx context.Context, client dynamic.Interface, name string) error {
	ingress, err := ingressclass.Ingresses.In(client, "shop").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	class, _, _ := unstructured.NestedString(ingress.Object, "spec", "ingressClassName")
	if diff := cmp.Diff(map[string]string{"example.org/owner": "web team"}, ingress.GetAnnotations()); diff != "" || class != "gateway" {
		return fmt.Errorf("Ingress shop/%s has the class %q, and annotations (-want +got):\n%s", name, class, diff)
	}
	return nil
}

func isRelabelled(ctx context.Context, client dynamic.Interface, name string) error {
	deployment, err := relabel.Deployments.In(client, "shop").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, path := range [][]string{{"metadata", "labels"}, {"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
		labels, _, err := unstructured.NestedStringMap(deployment.Object, path...)
		if diff := cmp.Diff(map[string]string{relabel.Recommended: name}, labels); diff != "" || err != nil {
			return errors.Join(err, fmt.Errorf("Deployment shop/%s: %v (-want +got):\n%s", name, path, diff))
		}
	}
	return nil
}
