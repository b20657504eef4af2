//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/eventingcluster"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

const (
	eventingNamespace = eventingcluster.Namespace
	// theirs is the object of the users' document, in another namespace than the operator, and with
	// three servers. What only an API server sets is left out.
	theirs = `apiVersion: operator.kyma-project.io/v1alpha1
kind: Eventing
metadata:
  finalizers:
  - eventing-manager.kyma-project.io/deletion-hook
  labels:
    operator.kyma-project.io/kyma-name: eventing-sample
  name: default-kyma-eventing
  namespace: kcp-system
spec:
  backend:
    type: nats
`
	servers = eventingcluster.Servers
)

// eventingObject asks for one server; %s is what happens to its volume.
var eventingObject = eventingcluster.Eventing("%s")

var eventings = operatorv1alpha1.GroupVersion.WithResource("eventings")

// eventing is a cluster without anything of Kyma's: its kind Subscription has the name of ours.
type eventing struct {
	*cluster
	kubectl  string
	manifest string
	started  *eventingcluster.Cluster
	// namespace and name are those of the Eventing.
	namespace, name string
	// publisher is the URL of the publisher's Service, and through sends requests there.
	publisher string
	through   http.RoundTripper
}

// startEventing starts a cluster with volumes on its node, a namespace that is restricted, and the
// images of this checkout.
func startEventing(t *testing.T, with kubernetes.Option) *eventing {
	t.Helper()
	e := eventingCluster(t, with)
	e.thisVersion(t)
	return e
}

// thisVersion builds the images and the manifest of this checkout.
func (e *eventing) thisVersion(t *testing.T) {
	t.Helper()
	e.started.Values = "page.enabled=true"
	e.version(t, e.started.Images)
}

// version builds the images and the manifest of a version.
func (e *eventing) version(t *testing.T, images func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	if err := images(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.manifest, []byte(e.started.Manifest), 0o600); err != nil {
		t.Fatal(err)
	}
}

// eventingCluster starts a cluster without any image of eventing.
func eventingCluster(t *testing.T, with kubernetes.Option) *eventing {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("no kubectl is installed, which applies the manifest")
	}
	started, err := eventingcluster.StartNode(ctx, with)
	check(err)
	t.Cleanup(func() {
		if err := started.Close(); err != nil {
			t.Error(err)
		}
	})
	e := &eventing{
		cluster: &cluster{ControlPlane: started.ControlPlane, client: started.Core, dynamic: started.Dynamic, images: map[string]string{}},
		started: started, namespace: eventingNamespace, name: "eventing", kubectl: kubectl, manifest: filepath.Join(t.TempDir(), "eventing-manager.yaml"),
	}
	e.publisher, e.through, err = started.Publisher()
	check(err)
	return e
}

// do runs kubectl, with an input.
func (e *eventing) do(t *testing.T, input string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), e.kubectl, args...)
	cmd.Env = []string{"KUBECONFIG=" + e.Kubeconfig, "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// ready waits until the Eventing is.
func (e *eventing) ready(t *testing.T, limit time.Duration) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s\n%s", e.describe(eventingNamespace), logs(e.client, eventingNamespace, "app.kubernetes.io/instance=eventing"))
		}
	})
	poll.Until(t, limit, "the Eventing is Ready", func(ctx context.Context) error {
		u, err := e.dynamic.Resource(eventings).Namespace(e.namespace).Get(ctx, e.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if state, _, _ := unstructured.NestedString(u.Object, "status", "state"); state != string(operatorv1alpha1.StateReady) {
			return fmt.Errorf("%v", u.Object["status"])
		}
		return nil
	})
}

// throughNATS runs a pod that publishes and consumes through the Service of NATS, also where
// nothing is scheduled.
func (e *eventing) throughNATS(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	names := backend.Names(backend.DefaultPrefix)
	from := func(variable, secret, key string) corev1.EnvVar {
		return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key}}}
	}
	yes, no := true, false
	job, err := e.client.BatchV1().Jobs(eventingNamespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "through-nats-"},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				NodeName:        e.node(t),
				RestartPolicy:   corev1.RestartPolicyNever,
				SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				Containers: []corev1.Container{{
					Name: "client", Image: e.image(t, workload), Args: []string{"nats", "tls://" + names.NATS() + "." + eventingNamespace + ".svc:4222"},
					Env:             []corev1.EnvVar{from("PUBLISHER", names.NATSUsers(), "publisher"), from("CONTROLLER", names.NATSUsers(), "controller"), from("CA", names.NATSCA(), "ca.crt")},
					SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var status batchv1.JobStatus
	err = await(ctx, e.client.BatchV1().RESTClient(), "jobs", eventingNamespace, job.Name, &batchv1.Job{}, func(o runtime.Object) bool {
		if j, ok := o.(*batchv1.Job); ok {
			status = j.Status
		}
		return status.Succeeded+status.Failed > 0
	})
	said := logs(e.client, eventingNamespace, "job-name="+job.Name)
	if err != nil || status.Succeeded != 1 || !strings.Contains(said, "wrong credentials are refused") {
		t.Fatalf("the client in a pod: %v\n%s", err, said)
	}
	policy := metav1.DeletePropagationBackground
	if err := e.client.BatchV1().Jobs(eventingNamespace).Delete(ctx, job.Name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
}

// node returns the name of the one node.
func (e *eventing) node(t *testing.T) string {
	t.Helper()
	nodes, err := e.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatalf("%d nodes, %v", len(nodes.Items), err)
	}
	return nodes.Items[0].Name
}

// deleted deletes the Eventing, and waits until nothing of the operator's is left but claims, of
// which there are to be n.
func (e *eventing) deleted(t *testing.T, n int) {
	t.Helper()
	if err := e.dynamic.Resource(eventings).Namespace(e.namespace).Delete(t.Context(), e.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, 3*time.Minute, "the Eventing and what it asked for are gone", func(ctx context.Context) error {
		u, err := e.dynamic.Resource(eventings).Namespace(e.namespace).Get(ctx, e.name, metav1.GetOptions{})
		if err := poll.Gone(err); err != nil {
			return fmt.Errorf("%w: %v", err, u.Object["status"])
		}
		var left []string
		for _, kind := range []string{"Secret", "ConfigMap", "Service", "Pod", "StatefulSet", "Deployment", "PodDisruptionBudget"} {
			group := map[string]string{"StatefulSet": "apps", "Deployment": "apps", "PodDisruptionBudget": "policy"}[kind]
			gvr, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
			list, err := e.dynamic.Resource(gvr).Namespace(eventingNamespace).List(ctx, metav1.ListOptions{LabelSelector: backend.PlaneLabel})
			if err != nil {
				return err
			}
			for i := range list.Items {
				left = append(left, kind+" "+list.Items[i].GetName())
			}
		}
		claims, err := e.client.CoreV1().PersistentVolumeClaims(eventingNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(left) > 0 || len(claims.Items) != n {
			return fmt.Errorf("left are %q and %d claims", left, len(claims.Items))
		}
		return nil
	})
}

// TestEventing applies the manifest and an Eventing to an empty cluster, sends an event through
// NATS, and deletes it all again.
func TestEventing(t *testing.T) {
	inLane(t, &others)
	e := startEventing(t, kubernetes.Node())
	ctx := t.Context()
	began := time.Now()
	e.do(t, "", "apply", "-f", e.manifest)
	e.do(t, "", "wait", "--for=condition=Established", "--timeout=30s", "crd/eventings.operator.kyma-project.io")
	e.do(t, fmt.Sprintf(eventingObject, "Retain"), "apply", "-f", "-")
	e.ready(t, 90*time.Second)
	t.Logf("Ready after %.0f s", time.Since(began).Seconds())
	e.throughNATS(t)
	e.events(t, began)

	// Objects that kubectl applied do not change, and an operator that has nothing to do writes
	// nothing.
	e.do(t, "", "diff", "-f", e.manifest)
	e.do(t, fmt.Sprintf(eventingObject, "Retain"), "diff", "-f", "-")
	mark, err := e.Mark(ctx)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-time.After(2 * time.Minute):
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	account := "system:serviceaccount:" + eventingNamespace + ":eventing-manager"
	leases, others := 0, []kubernetes.Request{}
	writes, err := e.Requests(ctx, mark, kubernetes.All(kubernetes.IsWrite, func(r kubernetes.Request) bool { return r.User == account }))
	for _, r := range writes {
		if r.Resource == "coordination.k8s.io/leases" {
			leases++
		} else {
			others = append(others, r)
		}
	}
	if err != nil || leases == 0 || len(others) > 0 {
		t.Errorf("an idle operator renews its Lease %d times, and writes %v, %v", leases, others, err)
	}
	refused, err := e.Requests(ctx, 0, func(r kubernetes.Request) bool { return r.User == account && r.Code == 403 })
	if err != nil || len(refused) > 0 {
		t.Errorf("the operator's Role lacks %v, %v", refused, err)
	}

	e.deleted(t, 1)
	e.do(t, fmt.Sprintf(eventingObject, "Delete"), "apply", "-f", "-")
	e.ready(t, 90*time.Second)
	e.throughNATS(t)
	e.deleted(t, 0)
	e.threeServers(t)
	e.do(t, "", "delete", "-f", e.manifest, "--wait=true", "--timeout=60s")
	left, err := e.client.CoreV1().Pods(eventingNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range left.Items {
		if pod := &left.Items[i]; pod.DeletionTimestamp == nil {
			t.Errorf("Pod %s is left", pod.Name)
		}
	}
	if _, err := e.dynamic.Resource(eventings).List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("the kind Eventing is still served")
	}
}

// threeServers applies the object of the users' document. NATS takes events with three servers, and
// also while one of them is gone.
func (e *eventing) threeServers(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	e.namespace, e.name = "kcp-system", "default-kyma-eventing"
	if _, err := e.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	e.do(t, theirs, "apply", "-f", "-")
	e.ready(t, 90*time.Second)
	t.Logf("Ready with %d servers after %.0f s", servers, time.Since(began).Seconds())
	budgets, err := e.client.PolicyV1().PodDisruptionBudgets(eventingNamespace).List(ctx, metav1.ListOptions{LabelSelector: backend.PlaneLabel})
	if err != nil || len(budgets.Items) != 3 { // NATS, the publisher and the controller
		t.Errorf("%d PodDisruptionBudgets, %v", len(budgets.Items), err)
	}
	// A pod that is made anew at once can be back before anybody has looked.
	e.do(t, "", "cordon", e.node(t))
	e.do(t, "", "-n", eventingNamespace, "delete", "pod", "eventing-nats-1", "--wait=false")
	poll.Until(t, time.Minute, "the condition says that a server is gone", func(ctx context.Context) error {
		u, err := e.dynamic.Resource(eventings).Namespace(e.namespace).Get(ctx, e.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(u.Object["status"]); !strings.Contains(text, "2 of 3 servers are ready") || !strings.Contains(text, "state:Ready") {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	e.throughNATS(t)
	e.do(t, "", "uncordon", e.node(t))
	e.ready(t, 90*time.Second)
	e.deleted(t, servers)
}
