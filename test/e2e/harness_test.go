//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/google/go-cmp/cmp"

	product "github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// upgrade is a cluster with stand-ins of Kyma's charts.
type upgrade struct {
	*kubernetes.ControlPlane
	helm        *helm.Helm
	core        clientset.Interface
	dynamic     dynamic.Interface
	controllers *standin.Controllers
	mesh        *standin.Mesh
	operator    *operator
	charts      string
	// workload is the image of all pods that are not ours; repository that of ours.
	workload, repository string
	overlay              string

	began time.Time
	// inFlight says that NATS Streaming has not delivered everything.
	inFlight atomic.Bool

	mu sync.Mutex
	// hooks are what the Jobs of hooks have said last, in order.
	hooks []string
	seen  map[types.UID]bool
}

// namespaces of the releases (domain: section 8).
func namespaceOf(component string) string {
	if component == "application-connector" {
		return standin.IntegrationNamespace
	}
	return standin.SystemNamespace
}

func newUpgrade(t *testing.T, major int) *upgrade {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	u := &upgrade{charts: t.TempDir(), seen: map[types.UID]bool{}, began: time.Now()}
	u.progress(t, "building Helm, and starting a cluster")
	if u.helm, err = helm.New(ctx, root, major); err != nil {
		t.Fatal(err)
	}
	if u.ControlPlane, err = kubernetes.Start(ctx, kubernetes.Knative()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Stop(); err != nil {
			t.Error(err)
		}
	})
	u.helm.Env = []string{"KUBECONFIG=" + u.Kubeconfig, "HOME=" + t.TempDir()}
	u.progress(t, "installing Knative Eventing")
	if err := u.InstallKnative(ctx); err != nil {
		t.Fatal(err)
	}
	if u.core, err = clientset.NewForConfig(u.Config()); err != nil {
		t.Fatal(err)
	}
	if u.dynamic, err = dynamic.NewForConfig(u.Config()); err != nil {
		t.Fatal(err)
	}
	if major == 2 {
		stop, err := u.helm.StartTiller(ctx, u.Kubeconfig, standin.TillerNamespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	u.progress(t, "building the images")
	u.images(ctx, t, root)
	u.overlay = filepath.Join(t.TempDir(), "overlay")
	if out, err := exec.CommandContext(ctx, "go", "build", "-C", root, "-o", u.overlay, "./build/overlay").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{standin.SystemNamespace, standin.IntegrationNamespace, "natss", "knative-eventing", "shop", "crm"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == standin.SystemNamespace || name == standin.IntegrationNamespace {
			// What a hardened cluster asks of every pod in them.
			ns.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
		}
		if _, err := u.core.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	u.definitionIsTheCharts(ctx, t)
	u.watch(t)
	return u
}

// progress says what comes next, and when that is.
func (u *upgrade) progress(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("%4.0f s  %s", time.Since(u.began).Seconds(), fmt.Sprintf(format, args...))
}

// images are those of the Dockerfile where Buildah is, or of the same programs.
func (u *upgrade) images(ctx context.Context, t *testing.T, root string) {
	t.Helper()
	var err error
	if u.workload, err = u.Push(ctx, "workload", "./test/e2e/workload"); err != nil {
		t.Fatal(err)
	}
	commands, err := filepath.Glob(filepath.Join(root, "cmd", "event*-*", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(root, "cmd", "*-*", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	var jobs []string
	for _, main := range slices.Compact(slices.Sorted(slices.Values(append(commands, more...)))) {
		// Eventing comes after the migration, and has tests of its own.
		if name := filepath.Base(filepath.Dir(main)); name != "event-service" && !strings.HasPrefix(name, "eventing-") {
			jobs = append(jobs, name)
		}
	}
	_, err = exec.LookPath("buildah")
	dockerfile := err == nil
	if dockerfile {
		build := exec.CommandContext(ctx, "make", "-C", root, "images", "IMAGES="+strings.Join(jobs, " "), "REPOSITORY="+u.Registry+"/eventmesh", "TAG=e2e",
			"BUILDER=buildah bud --isolation chroot --format docker")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("make images: %v\n%s", err, out)
		}
	} else {
		t.Log("Buildah is not there: the images hold the same programs, but are not the Dockerfile's")
	}
	for _, job := range jobs {
		name := "eventmesh/" + job + ":e2e"
		if dockerfile {
			push := exec.CommandContext(ctx, "buildah", "push", "--tls-verify=false", "--quiet", u.Registry+"/"+name)
			if out, err := push.CombinedOutput(); err != nil {
				t.Fatalf("buildah push %s: %v\n%s", name, err, out)
			}
		} else if _, err := u.Push(ctx, name, "./cmd/"+job); err != nil {
			t.Fatal(err)
		}
	}
	registry, _, _ := strings.Cut(u.workload, "/")
	u.repository = registry + "/eventmesh"
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

const definition = "subscriptions.eventing.kyma-project.io"

// definitionIsTheCharts hands the definition of Kyma Subscriptions to the chart
// cluster-essentials, which has it in every version from 1.10 to 1.11.
func (u *upgrade) definitionIsTheCharts(ctx context.Context, t *testing.T) {
	t.Helper()
	crd, err := u.dynamic.Resource(definitions).Get(ctx, definition, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.RemoveCRD(ctx, definition); err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": definition}, "spec": crd.Object["spec"],
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u.charts, "definition.yaml"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// subscriptionsServed is nil once the API server serves Kyma Subscriptions.
func (u *upgrade) subscriptionsServed(ctx context.Context) error {
	_, err := u.dynamic.Resource(standin.KymaSubscriptions).List(ctx, metav1.ListOptions{})
	return err
}

// load puts the rest of Kyma 1.10 in place: two Applications, one without its
// HTTPSource, with their event-services, a Kyma Subscription for each, and a Broker
// in the namespace of one, as it has come with a ServiceInstance since Kyma 1.9.
func (u *upgrade) load(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	outlive := context.WithoutCancel(ctx)
	u.eventually(t, "Kyma Subscriptions are served", u.subscriptionsServed)
	u.progress(t, "loading Kyma 1.10")
	var err error
	if u.controllers, err = standin.Start(outlive, u.Config(), standin.Options{RealKnative: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.controllers.Stop)
	if u.mesh, err = standin.StartMesh(outlive, u.Config(), standin.Options{RealKnative: true, Activated: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.mesh.Stop)
	links := u.knative("messaging.knative.dev", "subscriptions")
	for app, namespace := range map[string]string{"commerce": "shop", "customers": "crm"} {
		service := standin.AppService{ID: app + "-orders", Name: "orders", Events: true}
		objects := []*unstructured.Unstructured{standin.ApplicationWith(app, service), u.eventService(app, false)}
		if u.helm.Major == 2 {
			// Without it the job would leave the HTTPSource to application-operator
			// (docs/decisions/0101).
			objects = append(objects, standin.TillerRelease(app, standin.IntegrationNamespace, 1, "DEPLOYED", standin.ApplicationManifest(app, true)))
		}
		if err := standin.Load(ctx, u.Config(), objects...); err != nil {
			t.Fatal(err)
		}
		if _, err := u.dynamic.Resource(links).Namespace(standin.IntegrationNamespace).Create(ctx, standin.Link("v1", app, namespace, "brokersub-"+app), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	broker := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "metadata": map[string]any{"name": "default"},
	}}
	if _, err := u.dynamic.Resource(u.knative("eventing.knative.dev", "brokers")).Namespace("shop").Create(ctx, broker, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := standin.PutHTTPSources(ctx, u.Config(), "customers"); err != nil {
		t.Fatal(err)
	}
	if err := u.controllers.WaitReady(ctx, "customers"); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []*unstructured.Unstructured{
		standin.KymaSubscription("shop", "orders", "commerce", "order.created"), standin.KymaSubscription("crm", "changes", "customers", "customer.changed"),
	} {
		unstructured.RemoveNestedField(sub.Object, "spec", "include_subscription_name_header")
		sub.SetFinalizers(nil)
		if _, err := u.dynamic.Resource(standin.KymaSubscriptions).Namespace(sub.GetNamespace()).Create(ctx, sub, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := u.mesh.Wait(wait, func(m *standin.Mesh) bool {
		return m.Has(standin.KymaSubscriptions, 2) && standin.SubscriptionsReady(m)
	}); err != nil {
		t.Fatal(err)
	}
	u.monitoring(t)
	u.operator = u.startOperator(t)
	u.eventually(t, "the pods of the Event Bus and of the event-services run", func(ctx context.Context) error {
		running := 0
		for _, namespace := range []string{standin.SystemNamespace, standin.IntegrationNamespace, "natss"} {
			list, err := u.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
			if err != nil {
				return err
			}
			running += len(list.Items)
		}
		if running < 6 {
			return fmt.Errorf("%d of 6 pods run", running)
		}
		return nil
	})
	// The Channel of the HTTPSource, and two of the Event Bus.
	u.ready(t, "eventing.knative.dev", "brokers", 1)
	u.ready(t, "messaging.knative.dev", "channels", 3)
}

// ready waits until there are n objects of a kind of Knative's, all of them ready.
func (u *upgrade) ready(t *testing.T, group, resource string, n int) {
	t.Helper()
	poll.Until(t, 3*time.Minute, fmt.Sprintf("there are %d %s, all of them ready", n, resource), func(ctx context.Context) error {
		list, err := u.dynamic.Resource(u.knative(group, resource)).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var states []string
		all := len(list.Items) == n
		for i := range list.Items {
			state := readiness(&list.Items[i])
			states = append(states, fmt.Sprintf("%s/%s: %s", list.Items[i].GetNamespace(), list.Items[i].GetName(), state))
			all = all && state == "True"
		}
		if !all {
			return errors.New("these:\n" + strings.Join(states, "\n"))
		}
		return nil
	})
}

// brokersStop stops Knative's controller of Brokers and Triggers: what is made
// meanwhile does not become ready.
func (u *upgrade) brokersStop(t *testing.T) { u.brokerController(t, 0) }

// brokersGoOn lets it go on.
func (u *upgrade) brokersGoOn(t *testing.T) { u.brokerController(t, 1) }

func (u *upgrade) brokerController(t *testing.T, replicas int) {
	t.Helper()
	const namespace, name = "knative-eventing", "mt-broker-controller"
	u.progress(t, "Deployment %s/%s: %d replicas", namespace, name, replicas)
	_, err := u.core.AppsV1().Deployments(namespace).Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u.eventually(t, fmt.Sprintf("Knative's controller of Brokers has %d pods", replicas), func(ctx context.Context) error {
		d, err := u.core.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := u.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=mt-broker-controller"})
		if err != nil {
			return err
		}
		if d.Status.ObservedGeneration != d.Generation || int(d.Status.AvailableReplicas) != replicas || len(pods.Items) != replicas {
			return fmt.Errorf("%d pods, %d available, generation %d of %d observed", len(pods.Items), d.Status.AvailableReplicas, d.Status.ObservedGeneration, d.Generation)
		}
		return nil
	})
}

// unrecreatable makes a ServiceInstance whose provisioning has failed permanently, and
// which could not come back.
func (u *upgrade) unrecreatable(t *testing.T) (remove func()) {
	t.Helper()
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": standin.ServiceInstances.GroupVersion().String(), "kind": "ServiceClass", "metadata": map[string]any{"namespace": "shop", "name": "class-1"},
		"spec": map[string]any{"externalID": "commerce-orders", "externalName": "orders", "serviceBrokerName": standin.ApplicationBrokerName},
	}}
	instance := standin.ServiceInstance("shop", "orders", "orders")
	spec := instance.Object["spec"].(map[string]any)
	spec["serviceClassRef"], spec["servicePlanRef"] = map[string]any{"name": "class-1"}, map[string]any{"name": "plan-1"}
	classes := u.dynamic.Resource(standin.ServiceInstances.GroupVersion().WithResource("serviceclasses")).Namespace("shop")
	instances := u.dynamic.Resource(standin.ServiceInstances).Namespace("shop")
	_, err := classes.Create(t.Context(), class, metav1.CreateOptions{})
	if err == nil {
		_, err = instances.Create(t.Context(), instance, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = instances.Patch(t.Context(), "orders", types.MergePatchType,
			[]byte(`{"status":{"provisionStatus":"NotProvisioned","deprovisionStatus":"NotRequired","conditions":[{"type":"Failed","status":"True"},{"type":"Ready","status":"False"}]}}`),
			metav1.PatchOptions{}, "status")
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(instances.Delete(t.Context(), "orders", metav1.DeleteOptions{}), classes.Delete(t.Context(), "class-1", metav1.DeleteOptions{})); err != nil {
			t.Fatal(err)
		}
	}
}

func (u *upgrade) knative(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
}

// eventService is that of an Application, in a pod that runs here.
func (u *upgrade) eventService(app string, onMesh bool) *unstructured.Unstructured {
	d := standin.EventService(app, onMesh)
	spec := d.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	u.runHere(spec, "serve", ":8081")
	return d
}

// runHere lets a pod's containers run the workload, with these arguments before
// their own, as the restricted standard wants it.
func (u *upgrade) runHere(spec map[string]any, args ...any) {
	spec["terminationGracePeriodSeconds"] = int64(1)
	spec["securityContext"] = map[string]any{"runAsNonRoot": true, "seccompProfile": map[string]any{"type": "RuntimeDefault"}}
	for _, c := range spec["containers"].([]any) {
		container := c.(map[string]any)
		container["image"] = u.workload
		own, _ := container["args"].([]any)
		container["args"] = append(slices.Clone(args), own...)
		container["securityContext"] = map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}}
	}
}

// monitoring is the monitoring port of NATS Streaming, in a pod of its namespace:
// all that was ever sent has been delivered, or it is in flight.
func (u *upgrade) monitoring(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", u.Host+":0")
	if err != nil {
		t.Fatal(err)
	}
	links := u.knative("messaging.knative.dev", "subscriptions")
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list, err := u.dynamic.Resource(links).Namespace(standin.SystemNamespace).List(r.Context(), metav1.ListOptions{})
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		var channels []any
		for i := range list.Items {
			link := &list.Items[i]
			channel, _, _ := unstructured.NestedString(link.Object, "spec", "channel", "name")
			sent := 7
			if u.inFlight.Load() {
				sent = 5
			}
			channels = append(channels, map[string]any{
				"name": product.NATSChannel(standin.SystemNamespace, channel), "msgs": 7, "first_seq": 1, "last_seq": 7,
				"subscriptions": []any{map[string]any{"durable_name": product.NATSDurable(link.GetUID()), "is_durable": true, "last_sent": sent}},
			})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"server_id": "test", "count": len(channels), "total": len(channels), "channels": channels})
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	_, err = u.core.CoreV1().Pods("natss").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "nats-streaming-0"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "nats-streaming", Image: u.workload, Args: []string{"relay", "http://" + listener.Addr().String(), ":8222"},
				Ports: []corev1.ContainerPort{{ContainerPort: product.NATSMonitoringPort}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// chart writes the stand-in of Kyma's chart at a version, with the hooks over it
// from 1.11 on, and returns its folder.
func (u *upgrade) chart(t *testing.T, component, version string) string {
	t.Helper()
	chart := filepath.Join(u.charts, version, component)
	if _, err := os.Stat(chart); err == nil {
		return chart
	}
	files := map[string]string{
		"Chart.yaml":  fmt.Sprintf("apiVersion: v1\nname: %s\nversion: %s.0\n", component, version),
		"values.yaml": "ofKyma: true\n",
		"templates/configmap.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: {{ .Release.Namespace }}\ndata:\n  version: %q\n",
			component, version),
	}
	switch component {
	case "cluster-essentials":
		raw, err := os.ReadFile(filepath.Join(u.charts, "definition.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		files["templates/eventing-subscription.crd.yaml"] = string(raw)
	case "event-bus":
		for _, d := range standin.EventBus() {
			spec := d.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
			u.runHere(spec, "serve", ":8080")
			raw, err := yaml.Marshal(d.Object)
			if err != nil {
				t.Fatal(err)
			}
			files["templates/"+d.GetName()+".yaml"] = string(raw)
		}
	}
	if err := helm.WriteChart(chart, files); err != nil {
		t.Fatal(err)
	}
	if version != "1.10" && slices.Contains([]string{"core", "application-connector", "cluster-essentials"}, component) {
		root, err := filepath.Abs("../..")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), u.overlay, "-charts", filepath.Join(root, "charts"), "-chart", chart, "-kyma", version,
			"-repository", u.repository, "-tag", "e2e")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return chart
}

// helmUpgrade installs or upgrades a release as Kyma's installer does.
func (u *upgrade) helmUpgrade(t *testing.T, component, version string, sets ...string) (string, error) {
	t.Helper()
	return u.helmUpgradeWithin(t, 10*time.Minute, component, version, sets...)
}

// helmUpgradeWithin lets Helm give up earlier.
func (u *upgrade) helmUpgradeWithin(t *testing.T, timeout time.Duration, component, version string, sets ...string) (string, error) {
	t.Helper()
	var args []string
	if version != "1.10" && component != "event-bus" && component != "event-sources" {
		sets = append([]string{
			// A killed run's lock is over soon.
			"eventmesh-migration.leaseSeconds=5",
			"eventmesh-migration.jobs.eventservice-verify.args[0]=--per-application-timeout=1m",
		}, sets...)
		for _, set := range sets {
			args = append(args, "--set", set)
		}
	}
	if component == "event-bus" && u.helm.Major >= 4 {
		// Helm 4 applies on the server, which holds the replicas against it once the
		// scale-down has set them (docs/decisions/0501).
		args = append(args, "--force-conflicts")
	}
	began := time.Now()
	out, err := u.helm.Upgrade(t.Context(), component, u.chart(t, component, version), namespaceOf(component), timeout, args...)
	result := "done"
	if err != nil {
		result = "refused"
	}
	u.progress(t, "helm upgrade %s to %s: %s in %s", component, version, result, time.Since(began).Round(time.Second/10))
	return out, err
}

// must upgrades, and fails the test if that fails.
func (u *upgrade) must(t *testing.T, component, version string) {
	t.Helper()
	if _, err := u.helmUpgrade(t, component, version); err != nil {
		t.Fatalf("%v\n%s", err, u.failures(t, component))
	}
	if status := u.releaseStatus(t, component); status != "deployed" {
		t.Errorf("release %s is %s", component, status)
	}
	if accounts := u.accounts(t, component); len(accounts) > 0 {
		t.Errorf("the upgrade of %s leaves accounts behind: %q", component, accounts)
	}
}

// accounts are the ServiceAccounts of a release's hooks.
func (u *upgrade) accounts(t *testing.T, component string) []string {
	t.Helper()
	list, err := u.core.CoreV1().ServiceAccounts(namespaceOf(component)).List(t.Context(), metav1.ListOptions{LabelSelector: hooksOf(component)})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// hooksOf selects what the hooks of a release are made of.
func hooksOf(component string) string {
	return "app.kubernetes.io/name=eventmesh-migration,app.kubernetes.io/instance=" + component
}

// abandoned is an upgrade that Helm gives up on while a Job runs, which cannot end before goOn. It
// ends right all the same: its account is there as long as it is. Helm 3.18 and later deleted that
// on the commit before.
func (u *upgrade) abandoned(t *testing.T, component, version, hook string, goOn func()) {
	t.Helper()
	u.progress(t, "Helm gives up on %s after 20 s", hook)
	out, err := u.helmUpgradeWithin(t, 20*time.Second, component, version)
	if err == nil {
		t.Fatalf("Helm waits longer than 20 s:\n%s", out)
	}
	t.Logf("what the user sees:\n%v", err)
	name := component + "-" + hook
	jobs := u.core.BatchV1().Jobs(namespaceOf(component))
	job, err := jobs.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || job.Status.Active != 1 {
		t.Fatalf("Job %s does not run any more: %v", name, err)
	}
	if account := job.Spec.Template.Spec.ServiceAccountName; !slices.Contains(u.accounts(t, component), account) {
		t.Errorf("Job %s runs, and its account %s is gone", name, account)
	}
	goOn()
	u.eventually(t, "Job "+name+" succeeds without Helm", func(ctx context.Context) error {
		job, err := jobs.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if job.Status.Failed > 0 {
			log, _ := u.jobLog(t, component, name)
			return poll.Stop(fmt.Errorf("it has failed:\n%s", log))
		}
		if job.Status.Succeeded != 1 {
			return fmt.Errorf("%d pods are active, %d have succeeded", job.Status.Active, job.Status.Succeeded)
		}
		return nil
	})
}

// withoutHooks runs the half of a component's migration as one Job, which is
// rendered and applied as the README says, and returns what it printed.
func (u *upgrade) withoutHooks(t *testing.T, component, phase string) string {
	t.Helper()
	u.progress(t, "%s without hooks, phase %s", component, phase)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	namespace := namespaceOf(component)
	out, err := u.helm.Template(ctx, "by-hand", "charts/eventmesh-migration", "--namespace", namespace, "--kube-version", "1.36.3", "--api-versions", "eventing.knative.dev/v1", "--api-versions", "authentication.istio.io/v1alpha1",
		"--set", "standalone=true,hooks.enabled=false,component="+component+",phase="+phase+",image.repository="+u.repository+",image.tag=e2e")
	if err != nil {
		t.Fatal(err)
	}
	state := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: product.StateNamespace}}
	if _, err := u.core.CoreV1().Namespaces().Create(ctx, state, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	var job string
	for doc := range strings.SplitSeq(out, "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
			t.Fatal(err)
		}
		if obj.GetKind() == "" {
			continue
		}
		gvr := obj.GroupVersionKind().GroupVersion().WithResource(strings.ToLower(obj.GetKind()) + "s")
		client := dynamic.ResourceInterface(u.dynamic.Resource(gvr))
		if obj.GetNamespace() != "" {
			client = u.dynamic.Resource(gvr).Namespace(obj.GetNamespace())
		}
		if _, err := client.Create(ctx, obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if obj.GetKind() == "Job" {
			job = obj.GetName()
		}
	}
	var ended *batchv1.Job
	err = await(ctx, u.core.BatchV1().RESTClient(), "jobs", namespace, job, &batchv1.Job{}, func(o runtime.Object) bool {
		ended, _ = o.(*batchv1.Job)
		return ended != nil && ended.Status.Succeeded+ended.Status.Failed > 0
	})
	said := ""
	pods, errPods := u.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "job-name=" + job})
	if errPods != nil || len(pods.Items) != 1 {
		t.Fatalf("Job %s/%s has %d pods: %v, %v", namespace, job, len(pods.Items), err, errPods)
	}
	for _, c := range slices.Concat(pods.Items[0].Spec.InitContainers, pods.Items[0].Spec.Containers) {
		raw, errLog := u.core.CoreV1().Pods(namespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{Container: c.Name}).DoRaw(ctx)
		said += fmt.Sprintf("%s %v\n", raw, errLog)
	}
	if err != nil || ended.Status.Succeeded != 1 {
		t.Fatalf("Job %s/%s did not succeed: %v\n%s", namespace, job, err, said)
	}
	return said
}

// rollback goes back to the revision before the last.
func (u *upgrade) rollback(t *testing.T, component string) {
	t.Helper()
	u.told(t)
	u.progress(t, "helm rollback %s", component)
	if _, err := u.helm.Rollback(t.Context(), component, namespaceOf(component), 10*time.Minute); err != nil {
		t.Fatalf("%v\n%s", err, u.failures(t, component))
	}
}

func (u *upgrade) releaseStatus(t *testing.T, component string) string {
	t.Helper()
	status, err := u.helm.Status(t.Context(), component, namespaceOf(component))
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// jobsFailed are the Jobs of a release's hooks that have failed. Those that were
// done before stay with Helm 2, and go with a later Helm.
func (u *upgrade) jobsFailed(t *testing.T, component string) []string {
	t.Helper()
	list, err := u.core.BatchV1().Jobs(namespaceOf(component)).List(t.Context(), metav1.ListOptions{
		LabelSelector: hooksOf(component),
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Status.Succeeded == 0 {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// failures are what failed hooks of a release have said.
func (u *upgrade) failures(t *testing.T, component string) string {
	t.Helper()
	var said strings.Builder
	for _, job := range u.jobsFailed(t, component) {
		log, err := u.jobLog(t, component, job)
		fmt.Fprintf(&said, "%s: %v\n%s\n", job, err, log)
	}
	return said.String()
}

// jobLog is what "kubectl logs job/NAME" shows.
func (u *upgrade) jobLog(t *testing.T, component, job string) (string, error) {
	t.Helper()
	pods := u.core.CoreV1().Pods(namespaceOf(component))
	list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=" + job})
	if err != nil {
		return "", err
	}
	if len(list.Items) == 0 {
		return "", errNoPod
	}
	raw, err := pods.GetLogs(list.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	return string(bytes.TrimSpace(raw)), err
}

// killing upgrades, and kills the pod of a hook as soon as reached says so.
func (u *upgrade) killing(t *testing.T, component, version, hook string, reached func() bool) {
	t.Helper()
	killed := make(chan error, 1)
	ctx := t.Context()
	go func() {
		pods := u.core.CoreV1().Pods(namespaceOf(component))
		killed <- poll.For(ctx, 5*time.Minute, "the hook is at work, and its pod is deleted", func(ctx context.Context) error {
			if !reached() {
				return errors.New("the hook has not come so far")
			}
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "job-name=" + component + "-" + hook})
			if err != nil {
				return poll.Stop(err)
			}
			if len(list.Items) == 0 {
				return errNoPod
			}
			if err := pods.Delete(ctx, list.Items[0].Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
				return poll.Stop(err)
			}
			return nil
		})
	}()
	out, err := u.helmUpgrade(t, component, version)
	if failed := <-killed; failed != nil {
		t.Fatalf("the pod was not killed: %v\n%v", failed, err)
	}
	if err == nil {
		t.Fatalf("the upgrade succeeds without its hook:\n%s", out)
	}
	t.Logf("what the user sees:\n%v", err)
}

// state is what the migration changes.
type state struct {
	HTTPSources, Triggers, Subscriptions int
	Publisher, Controller                int32
	// Definition of Kyma Subscriptions.
	Definition bool
}

func (u *upgrade) state(t *testing.T) state {
	t.Helper()
	ctx := t.Context()
	replicas := func(name string) int32 {
		d, err := u.core.AppsV1().Deployments(standin.SystemNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return *d.Spec.Replicas
	}
	_, err := u.dynamic.Resource(definitions).Get(ctx, definition, metav1.GetOptions{})
	return state{
		HTTPSources:   u.count(t, "sources.kyma-project.io", "httpsources"),
		Triggers:      u.count(t, "eventing.knative.dev", "triggers"),
		Subscriptions: u.count(t, "eventing.kyma-project.io", "subscriptions"),
		Publisher:     replicas(standin.Publisher), Controller: replicas(standin.SubscriptionController),
		Definition: err == nil,
	}
}

func (u *upgrade) count(t *testing.T, group, resource string) int {
	gvr := u.knative(group, resource)
	if strings.HasSuffix(group, "kyma-project.io") {
		gvr.Version = "v1alpha1"
	}
	list, err := u.dynamic.Resource(gvr).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Logf("cannot count %s: %v", resource, err)
		return -1
	}
	return len(list.Items)
}

// snapshot is what the migration changes of Knative's and Kyma's objects.
func (u *upgrade) snapshot(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, kind := range []schema.GroupVersionResource{
		standin.HTTPSources, standin.KymaSubscriptions, u.knative("eventing.knative.dev", "triggers"), u.knative("eventing.knative.dev", "brokers"),
		u.knative("messaging.knative.dev", "channels"), u.knative("messaging.knative.dev", "subscriptions"), u.knative("serving.knative.dev", "services"),
	} {
		list, err := u.dynamic.Resource(kind).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			obj := &list.Items[i]
			raw, err := json.Marshal(obj.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			all[kind.Resource+"."+kind.Group+" "+obj.GetNamespace()+"/"+obj.GetName()] = string(raw)
		}
	}
	return all
}

// same waits until the migration's objects are as they were: what is owned by
// what was deleted goes a moment later.
func (u *upgrade) same(t *testing.T, when string, want map[string]string) {
	t.Helper()
	u.eventually(t, when+": everything is as it was before", func(context.Context) error {
		if diff := cmp.Diff(want, u.snapshot(t)); diff != "" {
			return fmt.Errorf("differences (-before +now):\n%s", diff)
		}
		return nil
	})
}

// triggerOf is the name of the Trigger that a Kyma Subscription becomes.
func (u *upgrade) triggerOf(namespace, name string) string {
	sub := standin.KymaSubscription(namespace, name, "", "")
	return namespace + "/" + product.TriggerName(sub)
}

// holdPod keeps a pod of the Event Bus from going.
func (u *upgrade) holdPod(t *testing.T) (release func()) {
	t.Helper()
	pods := u.core.CoreV1().Pods(standin.SystemNamespace)
	list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=event-publish-service"})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("no pod of the Event Bus: %v", err)
	}
	set := func(finalizers string) {
		_, err := pods.Patch(context.WithoutCancel(t.Context()), list.Items[0].Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	set(`["example.com/hold"]`)
	return func() { set("null") }
}

// watch notes what the pods of hooks say at their end: it is gone with them.
func (u *upgrade) watch(t *testing.T) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(u.core, 0)
	informer := factory.Core().V1().Pods().Informer()
	note := func(obj any) {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Labels["app.kubernetes.io/name"] != "eventmesh-migration" {
			return
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Terminated == nil || c.Name == "state-namespace" {
				continue // the first hook of each upgrade is none of the jobs
			}
			u.mu.Lock()
			if !u.seen[pod.UID] {
				u.seen[pod.UID] = true
				job := strings.TrimPrefix(pod.Labels["job-name"], pod.Labels["app.kubernetes.io/instance"]+"-")
				u.hooks = append(u.hooks, job+": "+resultOf(c.State.Terminated))
			}
			u.mu.Unlock()
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, obj any) { note(obj) }}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
}

// resultOf reads the result out of a termination message: "<job> <command>:
// <result> (exit code …".
func resultOf(c *corev1.ContainerStateTerminated) string {
	_, rest, _ := strings.Cut(c.Message, ": ")
	result, _, found := strings.Cut(rest, " (exit code")
	if !found {
		return fmt.Sprintf("exit code %d, %q", c.ExitCode, c.Message)
	}
	return result
}

// told returns what the hooks have said since the last time.
func (u *upgrade) told(t *testing.T) []string {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	told := append([]string{}, u.hooks...)
	u.hooks = nil
	return told
}

func (u *upgrade) eventually(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	poll.Until(t, 5*time.Minute, what, holds)
}

// operator stands in for application-operator: when the chart of application-connector
// has a new version, it upgrades the event-service of each Application.
type operator struct {
	u      *upgrade
	mu     sync.Mutex
	paused bool
	// version that the chart asks for.
	version string
}

func (u *upgrade) startOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{u: u}
	factory := informers.NewSharedInformerFactoryWithOptions(u.core, 0, informers.WithNamespace(standin.IntegrationNamespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	note := func(obj any) {
		if m, ok := obj.(*corev1.ConfigMap); ok && m.Name == "application-connector" {
			o.mu.Lock()
			o.version = m.Data["version"]
			o.mu.Unlock()
			o.upgrade(t)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, obj any) { note(obj) }}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	return o
}

func (o *operator) pause() { o.mu.Lock(); o.paused = true; o.mu.Unlock() }

// proceed lets it go on, as its next start would: the next upgrade of the chart is
// no change of the version.
func (o *operator) proceed() {
	o.mu.Lock()
	o.paused = false
	o.mu.Unlock()
	o.upgrade(nil)
}

// rolledOut waits until all event-services are on the mesh, and nothing else is.
func (u *upgrade) rolledOut(t *testing.T) {
	t.Helper()
	u.eventually(t, "the event-services are rolled out", func(ctx context.Context) error {
		pods, err := u.core.CoreV1().Pods(standin.IntegrationNamespace).List(ctx, metav1.ListOptions{LabelSelector: "release"})
		if err != nil {
			return err
		}
		var all []string
		old := false
		for i := range pods.Items {
			args := pods.Items[i].Spec.Containers[0].Args
			old = old || !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--eventMeshURL=") })
			all = append(all, fmt.Sprintf("%s %q", pods.Items[i].Name, args))
		}
		if old || len(all) != 2 {
			return fmt.Errorf("pods: %s", strings.Join(all, ", "))
		}
		return nil
	})
}

func (o *operator) upgrade(t *testing.T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.paused || o.version == "" {
		return
	}
	for _, app := range []string{"commerce", "customers"} {
		d := o.u.eventService(app, o.version != "1.10")
		raw, err := json.Marshal(map[string]any{"spec": d.Object["spec"]})
		if err == nil {
			_, err = o.u.core.AppsV1().Deployments(standin.IntegrationNamespace).Patch(context.Background(), d.GetName(), types.MergePatchType, raw, metav1.PatchOptions{})
		}
		if err != nil && t != nil && !apierrors.IsNotFound(err) {
			t.Errorf("application-operator cannot upgrade %s: %v", d.GetName(), err)
		}
	}
}
