// Package eventingmanager_test proves the eventing operator on a real API server with the real
// controllers, and with real NATS servers in pods that are processes.
package eventingmanager_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	eventingmanager "github.com/kyma-project/eventmesh-migration/charts/eventing-manager"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
	"github.com/kyma-project/eventmesh-migration/test/eventingpods"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// cluster is the one control plane of this package's tests.
var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.With(kubernetes.Workloads()), kubernetes.Shared(&cluster), kubernetes.Before(func(ctx context.Context) error {
		return cluster.InstallCRDFiles(ctx, eventingmanager.CRDs, "crds")
	}))
}

var (
	eventings     = operatorv1alpha1.GroupVersion.WithResource("eventings")
	subscriptions = schema.GroupVersionResource{Group: "eventing.kyma-project.io", Version: "v1alpha2", Resource: "subscriptions"}
	configMaps    = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets       = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	services      = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	statefulSets  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	deployments   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	autoscalers   = schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	claims        = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	budgets       = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	pods          = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// one is an Eventing with one server, which is as many as pods that are processes can have, and one
// pod of each program.
const one = `
apiVersion: operator.kyma-project.io/v1alpha1
kind: Eventing
metadata: {name: eventing}
spec:
  backend: {type: nats, config: {natsStreamReplicas: 1, natsStreamMaxSize: 10Mi, natsStorage: {size: 100Mi, sync: Interval}}}
  publisher: {replicas: {min: 1, max: 1}}
  controller: {replicas: 1}
`

// site is a namespace with an operator, and a node for its pods.
type site struct {
	t         *testing.T
	namespace string
	prefix    string
	core      clientset.Interface
	client    dynamic.Interface
	node      *node.Node
	pods      *eventingpods.Pods
	operator  *process.Process
	log       *log
	kube      string
	args      []string
	// binary and env are those of the operator: by default the program as it is.
	binary string
	env    []string
	// changes counts what was seen of Eventings.
	changes atomic.Int64
}

// log is what operators wrote, one after the other.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newSite has a namespace, a StorageClass and a node. Everything in it, and every Eventing of the
// cluster, is gone after the test.
func newSite(t *testing.T, namespace string) *site {
	t.Helper()
	s := &site{t: t, namespace: namespace, prefix: "eventing", log: &log{}}
	s.pods = eventingpods.New(t, cluster)
	var err error
	s.core, err = clientset.NewForConfig(cluster.Config())
	s.check(err)
	s.client, err = dynamic.NewForConfig(cluster.Config())
	s.check(err)
	_, err = s.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	s.check(err)
	_, err = s.core.StorageV1().StorageClasses().Create(t.Context(), node.Class("standard", true, storagev1.VolumeBindingWaitForFirstConsumer), metav1.CreateOptions{})
	s.check(err)
	s.accounts()
	// Not that of the test: a comma in its name ends a path in the configuration of NATS.
	dir, err := os.MkdirTemp("", "eventing-node-") //nolint:usetesting // see above
	s.check(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.node, err = node.Start(context.WithoutCancel(t.Context()), cluster.Config(), node.Options{Run: s.pods.Run, Directory: dir, Log: t.Logf})
	s.check(err)
	t.Cleanup(s.clean)
	s.follow()
	return s
}

// follow counts changes of Eventings.
func (s *site) follow() {
	s.t.Helper()
	all := s.client.Resource(eventings)
	informer := cache.NewSharedIndexInformer(kubernetes.ListWatch(all.List, all.Watch), &unstructured.Unstructured{}, 0, cache.Indexers{})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { s.changes.Add(1) }, UpdateFunc: func(any, any) { s.changes.Add(1) }, DeleteFunc: func(any) { s.changes.Add(1) },
	})
	s.check(err)
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	s.t.Cleanup(func() { stop(); running.Wait() })
}

// onceChanged is a question about Eventings for poll. It is asked at first, and then when one has
// changed since, or after a second: an Eventing was read ten times for each time that it changed.
func (s *site) onceChanged(ask func(context.Context) error) func(context.Context) error {
	var (
		answer error
		seen   = int64(-1)
		asked  time.Time
	)
	return func(ctx context.Context) error {
		if now := s.changes.Load(); now != seen || time.Since(asked) > time.Second {
			seen, asked = now, time.Now()
			answer = ask(ctx)
		}
		return answer
	}
}

func (s *site) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// accounts creates the accounts of the programs, with the Roles of the operator's chart.
func (s *site) accounts() {
	s.t.Helper()
	for _, u := range rendered(s.t, s.namespace, s.prefix) {
		gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
		if gvr.Group != "rbac.authorization.k8s.io" && gvr.Resource != "serviceaccounts" {
			continue
		}
		of := dynamic.ResourceInterface(s.client.Resource(gvr))
		if u.GetNamespace() != "" {
			of = s.client.Resource(gvr).Namespace(u.GetNamespace())
		}
		_, err := of.Apply(s.t.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "helm", Force: true})
		s.check(err)
	}
}

// rendered is the operator's chart.
func rendered(t *testing.T, namespace, prefix string) (all []*unstructured.Unstructured) {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	h, err := helm.New(t.Context(), root, 4)
	if err != nil {
		t.Fatal(err)
	}
	text, err := h.Template(t.Context(), "eventing-manager", "charts/eventing-manager", "--namespace", namespace, "--kube-version", "1.36.0",
		"--set", "image.tag=test,resourcePrefix="+prefix)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		if u := object(t, document); u.GetKind() != "" {
			all = append(all, u)
		}
	}
	return all
}

// clean removes all, whatever state the test has left it in.
func (s *site) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), time.Minute)
	defer cancel()
	if s.operator != nil {
		s.operator.Kill()
	}
	for _, gvr := range []schema.GroupVersionResource{eventings, subscriptions} {
		list, err := s.client.Resource(gvr).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		s.check(err)
		for i := range list.Items {
			u := &list.Items[i]
			to := s.client.Resource(gvr).Namespace(u.GetNamespace())
			if len(u.GetFinalizers()) > 0 {
				_, _ = to.Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			}
			if err := to.Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				s.t.Error(err)
			}
		}
	}
	for _, gvr := range []schema.GroupVersionResource{autoscalers, deployments, statefulSets, services, configMaps, secrets, budgets} {
		s.check(s.client.Resource(gvr).Namespace(s.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "eventing.kyma-project.io/plane"}))
	}
	poll.Until(s.t, time.Minute, "the pods are gone", func(ctx context.Context) error {
		list, err := s.client.Resource(pods).Namespace(s.namespace).List(context.WithoutCancel(ctx), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
	s.check(s.client.Resource(claims).Namespace(s.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	poll.Until(s.t, time.Minute, "the claims are gone", func(ctx context.Context) error {
		list, err := s.client.Resource(claims).Namespace(s.namespace).List(context.WithoutCancel(ctx), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
	if err := s.core.StorageV1().StorageClasses().Delete(ctx, "standard", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		s.t.Error(err)
	}
	s.node.Stop()
}

// start starts an operator. A kubeconfig other than that of the cluster may go through a proxy.
func (s *site) start(more ...string) *process.Process {
	s.t.Helper()
	if s.binary == "" {
		s.binary = process.Build(s.t, "./cmd/eventing-manager")
	}
	return s.run(s.binary, append(s.flags("test"), more...))
}

// flags are those of an operator, with a tag for the images of the publisher and of the controller.
func (s *site) flags(tag string) []string {
	s.t.Helper()
	if s.kube == "" {
		s.kube = cluster.Kubeconfig
	}
	url, err := s.pods.NATS.URL(s.namespace, s.prefix+"-nats-0")
	s.check(err)
	url = strings.Replace(url, "127.0.0.1", "localhost", 1) // which the certificate names
	return append([]string{
		"--kubeconfig", s.kube, "--namespace", s.namespace, "--resource-prefix", s.prefix, "--nats-image", "nats-server:test",
		"--publisher-image", eventingpods.Publisher + ":" + tag, "--controller-image", eventingpods.Controller + ":" + tag,
		"--nats-url", url, "--nats-client-url", url, "--metrics-bind-address", "0", "--health-probe-bind-address", "0",
		"--drain-delay", "1s", "--drain-watch", "1s",
	}, s.args...)
}

func (s *site) run(binary string, args []string) *process.Process {
	s.t.Helper()
	s.operator = process.Start(s.t, process.Program{Binary: binary, Env: s.env, Args: args, Stderr: s.log})
	return s.operator
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// create creates an object, in the namespace of the site if it has none.
func (s *site) create(gvr schema.GroupVersionResource, text string) *unstructured.Unstructured {
	s.t.Helper()
	u := object(s.t, text)
	if u.GetNamespace() == "" {
		u.SetNamespace(s.namespace)
	}
	created, err := s.client.Resource(gvr).Namespace(u.GetNamespace()).Create(s.t.Context(), u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	s.check(err)
	return created
}

func (s *site) get(gvr schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
	return s.client.Resource(gvr).Namespace(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
}

func (s *site) patch(gvr schema.GroupVersionResource, name, merge string) *unstructured.Unstructured {
	s.t.Helper()
	u, err := s.client.Resource(gvr).Namespace(s.namespace).Patch(s.t.Context(), name, types.MergePatchType, []byte(merge), metav1.PatchOptions{FieldManager: "somebody"})
	s.check(err)
	return u
}

func (s *site) delete(gvr schema.GroupVersionResource, name string) {
	s.t.Helper()
	s.check(s.client.Resource(gvr).Namespace(s.namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{}))
}

// eventing is the Eventing as it is now.
func (s *site) eventing(namespace, name string) (*operatorv1alpha1.Eventing, error) {
	u, err := s.client.Resource(eventings).Namespace(namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	e := &operatorv1alpha1.Eventing{}
	return e, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, e)
}

// await waits until the Eventing of the site has a state and, if given, a condition with a reason.
func (s *site) await(limit time.Duration, state operatorv1alpha1.State, condition, reason string) *operatorv1alpha1.Eventing {
	s.t.Helper()
	return s.awaitOf(s.namespace, "eventing", limit, state, condition, reason)
}

func (s *site) awaitOf(namespace, name string, limit time.Duration, state operatorv1alpha1.State, condition, reason string) *operatorv1alpha1.Eventing {
	s.t.Helper()
	var e *operatorv1alpha1.Eventing
	poll.Until(s.t, limit, fmt.Sprintf("Eventing %s/%s is %s, %s %s", namespace, name, state, condition, reason), s.onceChanged(func(context.Context) (err error) {
		if e, err = s.eventing(namespace, name); err != nil {
			return err
		}
		if e.Status.State != state {
			return fmt.Errorf("%s: %+v", e.Status.State, e.Status.Conditions)
		}
		if condition == "" {
			return nil
		}
		if c := meta.FindStatusCondition(e.Status.Conditions, condition); c == nil || c.Reason != reason {
			return fmt.Errorf("%+v", c)
		}
		return nil
	}))
	return e
}

// installed creates the Eventing of the site, and waits until it is ready.
func (s *site) installed() *operatorv1alpha1.Eventing {
	s.t.Helper()
	s.create(eventings, one)
	return s.await(90*time.Second, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionBackendAvailable, operatorv1alpha1.ReasonNATSAvailable)
}

// as connects as a user, with the credentials of the Secrets.
func (s *site) as(user string) *nats.Conn {
	s.t.Helper()
	seeds, err := s.core.CoreV1().Secrets(s.namespace).Get(s.t.Context(), s.prefix+"-nats-users", metav1.GetOptions{})
	s.check(err)
	authority, err := s.core.CoreV1().Secrets(s.namespace).Get(s.t.Context(), s.prefix+"-nats-ca", metav1.GetOptions{})
	s.check(err)
	url, err := s.pods.NATS.URL(s.namespace, s.prefix+"-nats-0")
	s.check(err)
	c, err := natsutil.Connect(strings.Replace(url, "127.0.0.1", "localhost", 1), natsutil.Account{Name: user, Seed: seeds.Data[user], CA: authority.Data["ca.crt"], Inbox: "_INBOX." + user})
	s.check(err)
	s.t.Cleanup(c.Close)
	poll.Until(s.t, 30*time.Second, user+" is connected", func(context.Context) error {
		if !c.IsConnected() {
			return fmt.Errorf("not connected: %w", c.LastError())
		}
		return nil
	})
	return c
}

func (s *site) js(user string) jetstream.JetStream {
	s.t.Helper()
	j, err := jetstream.New(s.as(user), jetstream.WithDefaultTimeout(5*time.Second))
	s.check(err)
	return j
}

// gone waits until the Eventing is gone.
func (s *site) gone(limit time.Duration) {
	s.t.Helper()
	poll.Until(s.t, limit, "the Eventing is gone", s.onceChanged(func(context.Context) error {
		e, err := s.eventing(s.namespace, "eventing")
		if err == nil {
			return fmt.Errorf("%s: %+v", e.Status.State, e.Status.Conditions)
		}
		return poll.Gone(err)
	}))
}

// left are the objects with the operator's label, as <kind> <name>; claims only if asked for.
func (s *site) left(withClaims bool) (found []string) {
	s.t.Helper()
	kinds := []schema.GroupVersionResource{autoscalers, deployments, statefulSets, services, configMaps, secrets, budgets, pods}
	if withClaims {
		kinds = append(kinds, claims)
	}
	for _, gvr := range kinds {
		list, err := s.client.Resource(gvr).Namespace(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "eventing.kyma-project.io/plane"})
		s.check(err)
		for _, u := range list.Items {
			name := u.GetName()
			if u.GetKind() == "Pod" && u.GetLabels()["pod-template-hash"] != "" {
				name = "of " + u.GetLabels()["app.kubernetes.io/name"] // each pod of a Deployment has another name
			}
			found = append(found, u.GetKind()+" "+name)
		}
	}
	return found
}

// quick leaves a test out of make test.
func quick(t *testing.T) {
	t.Helper()
	if !all {
		t.Skip("make test-slow has it")
	}
}

var errStill = errors.New("it is still as it was")

// published publishes an event that nobody gets, with a connection of its own.
func (s *site) published(ctx context.Context) error {
	users, err := s.core.CoreV1().Secrets(s.namespace).Get(ctx, s.prefix+"-nats-users", metav1.GetOptions{})
	if err != nil {
		return err
	}
	authority, err := s.core.CoreV1().Secrets(s.namespace).Get(ctx, s.prefix+"-nats-ca", metav1.GetOptions{})
	if err != nil {
		return err
	}
	url, err := s.pods.NATS.URL(s.namespace, s.prefix+"-nats-0")
	if err != nil {
		return err
	}
	c, err := natsutil.Connect(strings.Replace(url, "127.0.0.1", "localhost", 1),
		natsutil.Account{Name: "test", Seed: users.Data["publisher"], CA: authority.Data["ca.crt"], Inbox: "_INBOX.publisher"}, nats.RetryOnFailedConnect(false))
	if err != nil {
		return err
	}
	defer c.Close()
	j, err := jetstream.New(c, jetstream.WithDefaultTimeout(2*time.Second))
	if err != nil {
		return err
	}
	_, err = j.Publish(ctx, backend.Subject("commerce", "a.b"), []byte("1"), jetstream.WithRetryAttempts(0))
	return err
}
