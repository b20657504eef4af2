package prober_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/prober"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

const (
	patience = 5 * time.Minute
	// perStep is how many events are accepted in each step, at least.
	perStep = 100
)

// cluster is a Kyma 1.10 whose events really flow, on a real API server, with the
// real controllers of Deployments, StatefulSets and Jobs, and pods that are
// processes.
type cluster struct {
	*kubernetes.ControlPlane
	core        clientset.Interface
	client      dynamic.Interface
	controllers *standin.Controllers
	mesh        *standin.Mesh
	path        *standin.EventPath
	node        *node.Node

	ctx      context.Context // of the cluster
	binaries map[string]string
	// operator is what runs in the pods of application-operator, by the tag of the
	// image.
	operator func(tag, eventServiceImage string) node.Container
	// subscribers are by the host of their endpoint.
	subscribers map[string]*swap
	dir         string

	mu sync.Mutex
	// hooks are Jobs that have ended, with their exit codes; output is that of the
	// last one of each name.
	hooks  []string
	output map[string]string
	// kill says after how long the next Job of a name, its first letters apart, is
	// killed.
	kill map[string]time.Duration
}

// programs are the jobs of the charts of Kyma 1.11.
var programs = func() []string {
	var names []string
	for _, e := range registry.All() {
		if e.Chart != nil && e.Chart.Gate == nil {
			names = append(names, e.Name())
		}
	}
	return names
}()

// startCluster starts one with Applications, and the endpoints of subscribers.
func startCluster(t *testing.T, apps int, endpoints ...string) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("this test needs a real API server, which -short leaves out")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{
		ctx: t.Context(), dir: t.TempDir(), binaries: map[string]string{}, subscribers: map[string]*swap{}, output: map[string]string{}, kill: map[string]time.Duration{},
	}
	for _, host := range endpoints {
		c.subscribers[host] = &swap{}
	}
	for _, name := range append([]string{"event-service"}, programs...) {
		c.binaries[name] = process.BuildPlain(t, "./cmd/"+name)
	}
	var err error
	c.ControlPlane, err = kubernetes.Start(ctx, kubernetes.Controllers("deployment-controller", "replicaset-controller", "statefulset-controller",
		"job-controller", "garbage-collector-controller", "namespace-controller", "serviceaccount-controller"))
	check(err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	if !c.Own() {
		t.Skip("this test needs a cluster whose pods nobody else runs")
	}
	check(c.InstallCRDs(ctx, kubernetes.KnativeV1alpha1))
	c.client, err = dynamic.NewForConfig(c.Config())
	check(err)
	c.core, err = clientset.NewForConfig(c.Config())
	check(err)
	c.controllers, err = standin.Start(t.Context(), c.Config(), standin.Options{})
	check(err)
	t.Cleanup(c.controllers.Stop)
	_, err = standin.Put(ctx, c.Config(), apps)
	check(err)
	for _, name := range []string{"shop", "crm", "natss", "knative-eventing"} {
		c.create(t, standin.Namespaces, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}})
	}
	c.mesh, err = standin.StartMesh(t.Context(), c.Config(), standin.Options{Activated: true})
	check(err)
	t.Cleanup(c.mesh.Stop)
	c.path, err = standin.StartEventPath(t.Context(), c.Config(), standin.EventPathOptions{
		Subscriber: http.HandlerFunc(c.deliver),
		Address:    func(pod types.UID) string { return c.node.Address(pod) },
	})
	check(err)
	t.Cleanup(c.path.Stop)
	c.node, err = node.Start(t.Context(), c.Config(), node.Options{Run: c.run, Log: t.Logf})
	check(err)
	t.Cleanup(c.node.Stop)
	return c
}

// deliver hands what is delivered to the subscriber with that endpoint.
func (c *cluster) deliver(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	if s := c.subscribers[host]; s != nil {
		s.ServeHTTP(w, r)
	}
}

// run starts what runs in a pod.
func (c *cluster) run(ctx context.Context, pod *corev1.Pod, _ node.Mounts) (node.Container, error) {
	program, args := node.Program(pod), pod.Spec.Containers[0].Args
	switch {
	case program == "application-operator" && c.operator != nil:
		image := pod.Spec.Containers[0].Image
		eventService := ""
		for _, arg := range args {
			if value, ok := strings.CutPrefix(arg, "--eventServiceImage="); ok {
				eventService = value
			}
		}
		return c.operator(image[strings.LastIndex(image, ":")+1:], eventService), nil
	case program == "event-service" && slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--eventMeshURL=") }):
		return c.eventService(ctx, pod)
	case slices.Contains(programs, program):
		return c.hook(ctx, pod, program)
	}
	return node.NewStill(), nil
}

// eventService runs the real one, with the arguments of its pod but for the ports,
// which all pods here share, and the adapter's name.
func (c *cluster) eventService(ctx context.Context, pod *corev1.Pod) (node.Container, error) {
	args := slices.DeleteFunc(slices.Clone(pod.Spec.Containers[0].Args), func(arg string) bool {
		return strings.HasPrefix(arg, "--externalAPIPort=") || strings.HasPrefix(arg, "--metricsPort=") || strings.HasPrefix(arg, "--eventMeshURL=") || arg == "/eventservice"
	})
	app := strings.TrimSuffix(pod.Labels["app"], "-event-service")
	p, err := eventservice.Start(ctx, c.binaries["event-service"], nil, append(args, "--eventMeshURL="+c.path.AdapterURL(app))...)
	if err != nil {
		return nil, err
	}
	return served{p}, nil
}

type served struct{ *eventservice.Process }

func (s served) Address() string { return s.URL }
func (s served) Terminate()      { _ = s.Process.Terminate() }
func (s served) Ended() (int32, string) {
	if code := s.ExitCode(); code >= 0 {
		return int32(code), ""
	}
	return 137, ""
}

// hook runs a job of the migration as the ServiceAccount of its pod.
func (c *cluster) hook(ctx context.Context, pod *corev1.Pod, program string) (node.Container, error) {
	kubeconfig, err := c.kubeconfig(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	p, err := node.StartProcess(c.binaries[program], []string{"KUBECONFIG=" + kubeconfig}, pod.Spec.Containers[0].Args)
	if err != nil {
		return nil, err
	}
	job := pod.Labels["job-name"]
	c.mu.Lock()
	defer c.mu.Unlock()
	for suffix, after := range c.kill {
		if strings.HasSuffix(job, suffix) {
			time.AfterFunc(after, p.Kill)
			delete(c.kill, suffix)
		}
	}
	go func() {
		<-p.Exited()
		code, _ := p.Ended()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hooks = append(c.hooks, fmt.Sprintf("%s: exit code %d", job, code))
		c.output[job] = p.Output()
	}()
	return p, nil
}

// kubeconfig is one with which a program is a ServiceAccount.
func (c *cluster) kubeconfig(ctx context.Context, namespace, account string) (string, error) {
	if account == "" {
		account = "default"
	}
	token, err := c.core.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("cannot get a token of ServiceAccount %s/%s: %w", namespace, account, err)
	}
	raw, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		return "", err
	}
	for auth := range raw.AuthInfos {
		raw.AuthInfos[auth] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	path := filepath.Join(c.dir, namespace+"-"+account+".kubeconfig")
	return path, clientcmd.WriteToFile(*raw, path)
}

// told returns how the hooks since the last time have ended.
func (c *cluster) told() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := c.hooks
	c.hooks = nil
	return told
}

// stepper begins a step, does something, and returns when events were accepted.
type stepper func(name string, do ...func())

// probe sends events to targets while during goes through its steps, in each of
// which events are accepted.
func (c *cluster) probe(t *testing.T, targets []prober.Target, o prober.Options, during func(*prober.Prober, stepper), endpoints ...string) *prober.Prober {
	t.Helper()
	p := prober.New(targets, o)
	for _, host := range endpoints {
		c.subscribers[host].set(p)
	}
	sending, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(sending)
	}()
	// Also when a step fails the test.
	defer func() {
		stop()
		<-done
	}()
	accept := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := p.AwaitAccepted(ctx, perStep); err != nil {
			t.Fatalf("%v\n%s", err, p.Report())
		}
	}
	accept()
	during(p, func(name string, do ...func()) {
		t.Helper()
		p.Step(name)
		for _, f := range do {
			f()
		}
		accept()
	})
	return p
}

func (c *cluster) target(app, eventType string) prober.Target {
	return prober.Target{Application: app, URL: c.path.URL(app), EventType: eventType}
}

func (c *cluster) create(t *testing.T, gvr schema.GroupVersionResource, u *unstructured.Unstructured) {
	t.Helper()
	if _, err := c.client.Resource(gvr).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// subscribe makes a Kyma Subscription, and waits until all there are then deliver.
func (c *cluster) subscribe(t *testing.T, namespace, name, app, eventType string) {
	t.Helper()
	u := standin.KymaSubscription(namespace, name, app, eventType)
	unstructured.RemoveNestedField(u.Object, "spec", "include_subscription_name_header")
	c.create(t, standin.KymaSubscriptions, u)
}

// link brings an Application's events to the Broker of a namespace, as
// application-broker does.
func (c *cluster) link(t *testing.T, app, namespace string) {
	t.Helper()
	links := schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "subscriptions"}
	c.create(t, links, standin.Link("v1alpha1", app, namespace, "brokersub-"+app+"-"+namespace))
}

func (c *cluster) awaitMesh(t *testing.T, what string, holds func(*standin.Mesh) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.mesh.Wait(ctx, holds); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func (c *cluster) awaitPath(t *testing.T, what string, holds func(*standin.EventPath) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.path.Wait(ctx, holds); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
