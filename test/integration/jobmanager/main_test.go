// Package jobmanager proves the job manager and eventmesh-migrate on a real API
// server with its own controllers: the order of hooks around real Deployments, one
// Lease for all jobs, the program as an operator uses it.
package jobmanager

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// One control plane for all tests of this package, which run one after the other.
var (
	cluster *kubernetes.ControlPlane
	client  dynamic.Interface
	typed   clientset.Interface
)

const binary = "./cmd/eventmesh-migrate"

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.Shared(&cluster, kubernetes.KnativeV1alpha1), kubernetes.Before(connect))
}

func connect(ctx context.Context) (err error) {
	cfg := cluster.Config()
	// Finalizers and the like are as Kyma has them.
	cfg.WarningHandler = rest.NoWarnings{}
	if client, err = dynamic.NewForConfig(cfg); err != nil {
		return err
	}
	if typed, err = clientset.NewForConfig(cfg); err != nil {
		return err
	}
	_, err = standin.Put(ctx, cluster.Config(), 0)
	return err
}

// kinds are the resources that tests name by their kind.
var kinds = map[string]schema.GroupVersionResource{
	"Application": standin.Applications, "HTTPSource": standin.HTTPSources, "Deployment": standin.Deployments, "ConfigMap": standin.ConfigMaps, "Namespace": standin.Namespaces,
	"EventActivation": standin.EventActivations, "Pod": standin.Pods,
	"KymaSubscription":        standin.KymaSubscriptions,
	"Channel":                 {Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "channels"},
	"Link":                    {Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "subscriptions"},
	"Broker":                  {Group: "eventing.knative.dev", Version: "v1alpha1", Resource: "brokers"},
	"Trigger":                 {Group: "eventing.knative.dev", Version: "v1alpha1", Resource: "triggers"},
	"Adapter":                 {Group: "serving.knative.dev", Version: "v1alpha1", Resource: "services"},
	"ServiceInstance":         {Group: "servicecatalog.k8s.io", Version: "v1beta1", Resource: "serviceinstances"},
	"ServiceBinding":          {Group: "servicecatalog.k8s.io", Version: "v1beta1", Resource: "servicebindings"},
	"ServiceBindingUsage":     {Group: "servicecatalog.kyma-project.io", Version: "v1alpha1", Resource: "servicebindingusages"},
	"Job":                     {Group: "batch", Version: "v1", Resource: "jobs"},
	"ServiceAccount":          {Version: "v1", Resource: "serviceaccounts"},
	"ClusterRole":             {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"HorizontalPodAutoscaler": {Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"},
	"Secret":                  {Version: "v1", Resource: "secrets"},
	"Lease":                   {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	"StatefulSet":             {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"Claim":                   {Version: "v1", Resource: "persistentvolumeclaims"},
	"StorageClass":            {Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"},
}

func resource(kind, namespace string) dynamic.ResourceInterface {
	gvr, ok := kinds[kind]
	if !ok {
		panic("unknown kind " + kind)
	}
	if namespace == "" {
		return client.Resource(gvr)
	}
	return client.Resource(gvr).Namespace(namespace)
}

// object reads one from YAML.
func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return u
}

// put creates an object and then writes its status, if it has one. It replaces one
// of the same name.
func put(t testing.TB, kind string, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	remove(t, kind, u.GetNamespace(), u.GetName())
	r := resource(kind, u.GetNamespace())
	status := u.Object["status"]
	made, err := r.Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("cannot create %s %s/%s: %v", kind, u.GetNamespace(), u.GetName(), err)
	}
	if status != nil {
		raw, _ := json.Marshal(map[string]any{"status": status})
		if made, err = r.Patch(t.Context(), u.GetName(), types.MergePatchType, raw, metav1.PatchOptions{}, "status"); apierrors.IsNotFound(err) {
			made, err = r.Get(t.Context(), u.GetName(), metav1.GetOptions{}) // a kind without that subresource has stored it
		}
		if err != nil {
			t.Fatalf("cannot write the status of %s %s/%s: %v", kind, u.GetNamespace(), u.GetName(), err)
		}
	}
	return made
}

// remove deletes an object, whatever holds it, and returns when it is gone.
func remove(t testing.TB, kind, namespace, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	r := resource(kind, namespace)
	live, err := r.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(live.GetFinalizers()) > 0 {
		if _, err := r.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	policy := metav1.DeletePropagationBackground
	if kind == "Deployment" {
		// A ReplicaSet that outlives its Deployment goes on making pods.
		policy = metav1.DeletePropagationForeground
	}
	err = r.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), PropagationPolicy: &policy})
	if apierrors.IsNotFound(err) {
		return
	}
	// Kubernetes 1.16 says of a namespace that is going already that it is in conflict.
	if err != nil && !(kind == "Namespace" && apierrors.IsConflict(err)) {
		t.Fatal(err)
	}
	// Not watched: an object is older than the watch cache of Kubernetes 1.16 after 100 changes of
	// its kind.
	poll.Until(t, 2*time.Minute, fmt.Sprintf("%s %s/%s is gone", kind, namespace, name), func(ctx context.Context) error {
		_, err := r.Get(ctx, name, metav1.GetOptions{})
		return poll.Gone(err)
	})
}

func patch(t testing.TB, kind, namespace, name, patch string, subresources ...string) {
	t.Helper()
	if _, err := resource(kind, namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		t.Fatalf("cannot patch %s %s/%s: %v", kind, namespace, name, err)
	}
}

func namespace(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		u := object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
		if _, err := resource("Namespace", "").Create(context.WithoutCancel(t.Context()), u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// forget removes what the jobs keep.
func forget(t testing.TB) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	namespace(t, kyma.StateNamespace)
	remove(t, "Lease", kyma.StateNamespace, "eventmesh-migration")
	ours := metav1.ListOptions{LabelSelector: "eventmesh-migration.kyma-project.io/job"}
	for _, kind := range []string{"Secret", "ConfigMap"} {
		if err := resource(kind, kyma.StateNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, ours); err != nil {
			t.Fatal(err)
		}
	}
}

// options of an engine in this process.
func options(t *testing.T) engine.Options {
	t.Helper()
	return engine.Options{
		Names:          cli.Names,
		StateNamespace: kyma.StateNamespace,
		Identity:       fmt.Sprintf("test-%d", time.Now().UnixNano()), LeaseDuration: time.Second, Timeout: time.Minute,
		Log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)),
	}
}

// outcome is how the program ended.
type outcome struct {
	code           int
	stdout, stderr string
}

func (o outcome) want(t *testing.T, code int, parts ...string) {
	t.Helper()
	if o.code != code {
		t.Fatalf("exit code %d, want %d\n%s\n%s", o.code, code, o.stdout, o.stderr)
	}
	for _, part := range parts {
		if !strings.Contains(o.stdout+o.stderr, part) {
			t.Errorf("%q is missing in:\n%s\n%s", part, o.stdout, o.stderr)
		}
	}
}

// tool runs eventmesh-migrate on the cluster, as a process of its own.
func tool(t *testing.T, args ...string) outcome {
	t.Helper()
	return called(t, process.BuildPlain(t, binary), "", args...)
}

func called(t *testing.T, program, dir string, args ...string) outcome {
	t.Helper()
	p := process.Run(t, process.Program{
		Binary: program, Args: args, Dir: dir, Env: []string{"KUBECONFIG=" + cluster.Kubeconfig, "PATH=" + os.Getenv("PATH")},
	})
	return outcome{p.Wait(), p.Stdout(), p.Stderr()}
}
