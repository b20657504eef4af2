package takeover_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/takeover"
	"github.com/kyma-project/eventmesh-migration/test/eventingpods"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/sinks"
	"github.com/kyma-project/eventmesh-migration/test/standin/kymaeventing"
)

const (
	namespace = "kyma-system"
	prefix    = "eventing-next"
	program   = "./cmd/kubectl-eventing"
	publisher = "eventing-publisher-proxy"
)

var (
	eventings     = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1alpha1", Resource: "eventings"}
	subscriptions = schema.GroupVersionResource{Group: "eventing.kyma-project.io", Version: "v1alpha2", Resource: "subscriptions"}
	natsObjects   = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1alpha1", Resource: "nats"}
	statefulSets  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	pods          = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	deployments   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	kymaSpec      = `{backend: {type: NATS, config: {natsStreamReplicas: 1, natsStreamMaxSize: 10Mi, natsStreamStorageType: File, eventTypePrefix: sap.kyma.custom}}, publisher: {replicas: {min: 1, max: 1}}}`
)

// site is a cluster with Kyma's eventing, and with ours beside it that does not run.
type site struct {
	t       *testing.T
	core    clientset.Interface
	client  dynamic.Interface
	kyma    *kymaeventing.Kyma
	pods    *eventingpods.Pods
	node    *node.Node
	sinks   *sinks.Sinks
	ports   sync.Map // node.Listener by UID of the pod
	targets atomic.Pointer[[]string]
	both    atomic.Int64 // how often both delivered at the same time
}

func (s *site) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// newSite has Kyma's eventing running, with n Subscriptions.
func newSite(t *testing.T, n int) *site {
	t.Helper()
	s := newCluster(t)
	s.natsKind()
	for _, text := range kymaeventing.Manifest(kymaSpec) {
		s.create(text)
	}
	s.subscribe(n)
	s.install()
	s.begin(n)
	return s
}

// newCluster has a node, and nothing on it.
func newCluster(t *testing.T) *site {
	t.Helper()
	s := newClients(t)
	s.sinks, s.pods = sinks.Start(t), eventingpods.New(t, cluster)
	config := cluster.Config()
	config.WarningHandler = rest.NoWarnings{}
	theirs, err := s.pods.NATS.URL(namespace, "eventing-nats-0")
	s.check(err)
	s.kyma, err = kymaeventing.New(kymaeventing.Options{Config: config, NATS: strings.Replace(theirs, "tls://", "nats://", 1), NakDelay: time.Second, Log: t.Logf})
	s.check(err)
	ours, err := s.pods.NATS.URL(namespace, prefix+"-nats-0")
	s.check(err)
	ours = strings.Replace(ours, "127.0.0.1", "localhost", 1) // which the certificate names
	s.pods.More[eventingpods.Manager] = []string{"--drain-delay=1s", "--drain-watch=1s", "--nats-url=" + ours, "--nats-client-url=" + ours}
	s.pods.More[eventingpods.Controller] = []string{"--dns-server=" + s.sinks.DNS}
	s.create(`{apiVersion: v1, kind: Namespace, metadata: {name: kyma-system}}`)
	_, err = s.core.StorageV1().StorageClasses().Create(t.Context(), node.Class("standard", true, storagev1.VolumeBindingWaitForFirstConsumer), metav1.CreateOptions{})
	s.check(err)
	dir, err := os.MkdirTemp("", "take-over-node-") //nolint:usetesting // a comma in the name of a test ends a path in the configuration of NATS
	s.check(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.node, err = node.Start(context.WithoutCancel(t.Context()), config, node.Options{Run: s.run, Directory: dir})
	s.check(err)
	t.Cleanup(s.node.Stop)
	t.Cleanup(s.clean)
	return s
}

// newClients can only ask the API server.
func newClients(t *testing.T) *site {
	t.Helper()
	s := &site{t: t}
	var err error
	config := cluster.Config()
	config.WarningHandler = rest.NoWarnings{}
	s.core, err = clientset.NewForConfig(config)
	s.check(err)
	s.client, err = dynamic.NewForConfig(config)
	s.check(err)
	return s
}

// subscribe creates n Subscriptions, with the Services of their sinks.
func (s *site) subscribe(n int) {
	s.t.Helper()
	for i := range n {
		name := fmt.Sprintf("s%d", i)
		s.service(name)
		s.create(fmt.Sprintf(`{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: %s, namespace: kyma-system},
 spec: {sink: "%s", source: commerce, types: [order.created.v%d], typeMatching: standard}}`, name, s.sinks.URL(name, namespace), i))
	}
}

// begin waits until Kyma's eventing delivers to n Subscriptions.
func (s *site) begin(n int) {
	s.t.Helper()
	go s.follow(s.t.Context())
	s.await(time.Minute, "Kyma's eventing is ready", func(ctx context.Context) error { return s.allReady(ctx, n) })
}

// run is what runs in a pod.
func (s *site) run(ctx context.Context, pod *corev1.Pod, mounts node.Mounts) (node.Container, error) {
	var c node.Container
	var err error
	switch node.Program(pod) {
	case kymaeventing.ManagerImage:
		c, err = s.kyma.Manager(ctx, pod)
	case kymaeventing.NATSManagerImage:
		c, err = s.kyma.NATSManager(ctx, pod)
	case kymaeventing.PublisherImage:
		c, err = s.kyma.Publisher(ctx, pod)
	default:
		c, err = s.pods.Run(ctx, pod, mounts)
	}
	if l, ok := c.(node.Listener); ok && err == nil {
		s.ports.Store(pod.UID, l)
	}
	return c, err
}

// install applies our chart beside Kyma's, as the document says.
func (s *site) install() {
	s.t.Helper()
	root, err := kubernetes.ModuleRoot()
	s.check(err)
	h, err := helm.New(s.t.Context(), root, 4)
	s.check(err)
	command, _, _ := strings.Cut(takeover.Install, " | ") // helm template …, without --include-crds, which are there
	args := slices.DeleteFunc(strings.Fields(command)[2:], func(arg string) bool { return arg == "--include-crds" })
	text, err := h.Template(s.t.Context(), args[0], args[1], append(args[2:], "--kube-version", "1.36.0", "--set", "image.tag=test")...)
	s.check(err)
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		if strings.Contains(document, "kind:") {
			s.create(document)
		}
	}
}

// natsKind is the definition of the kind of nats-manager.
func (s *site) natsKind() {
	s.t.Helper()
	s.create(kymaeventing.NATSDefinition)
	s.await(time.Minute, "the kind NATS is served", func(ctx context.Context) error {
		_, err := s.client.Resource(natsObjects).List(ctx, metav1.ListOptions{})
		return err
	})
}

// service is that of a sink, which Kyma's operator wants to exist.
func (s *site) service(name string) {
	s.t.Helper()
	s.create(fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: kyma-system}, spec: {clusterIP: None, ports: [{port: 80}]}}`, name))
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func (s *site) create(text string) {
	s.t.Helper()
	u := object(s.t, text)
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	if u.GetKind() == "NATS" {
		gvr = natsObjects
	}
	of := dynamic.ResourceInterface(s.client.Resource(gvr))
	if u.GetNamespace() != "" {
		of = s.client.Resource(gvr).Namespace(u.GetNamespace())
	}
	_, err := of.Create(s.t.Context(), u, metav1.CreateOptions{})
	if u.GetNamespace() == "" && apierrors.IsAlreadyExists(err) {
		return // of an earlier test
	}
	s.check(err)
}

// clean removes everything, whatever state a test has left it in.
func (s *site) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 2*time.Minute)
	defer cancel()
	for _, name := range []string{"validatingadmissionpolicybindings", "validatingadmissionpolicies"} {
		_ = s.client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: name}).Delete(ctx, "eventing-take-over", metav1.DeleteOptions{})
	}
	for _, name := range []string{"nats-manager", "eventing-manager", prefix + "-manager"} { // nobody writes a finalizer again
		_ = s.client.Resource(deployments).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
	poll.Until(s.t, time.Minute, "everything is gone", func(context.Context) error {
		for _, gvr := range []schema.GroupVersionResource{eventings, subscriptions, natsObjects} {
			list, err := s.client.Resource(gvr).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // a test has deleted the kind
			}
			if err != nil {
				return err
			}
			for i := range list.Items {
				of := s.client.Resource(gvr).Namespace(list.Items[i].GetNamespace())
				_, _ = of.Patch(ctx, list.Items[i].GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				_ = of.Delete(ctx, list.Items[i].GetName(), metav1.DeleteOptions{})
			}
			if len(list.Items) > 0 {
				return fmt.Errorf("%d %s are left", len(list.Items), gvr.Resource)
			}
		}
		for _, name := range []string{namespace, "eventing-take-over"} {
			if err := s.core.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("namespace %s: %w", name, err)
			}
		}
		return nil
	})
	_ = s.core.StorageV1().StorageClasses().Delete(ctx, "standard", metav1.DeleteOptions{})
}

// follow keeps the addresses of the ready pods behind Kyma's Service, as kube-proxy does, and not
// sooner.
func (s *site) follow(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		if s.kyma.Running() > 0 && len(s.pods.At(eventingpods.Controller, 8080)) > 0 {
			s.both.Add(1)
		}
		time.Sleep(50 * time.Millisecond)
		if i%4 > 0 { // the API server is asked less often
			continue
		}
		var all []string
		if service, err := s.core.CoreV1().Services(namespace).Get(ctx, publisher, metav1.GetOptions{}); err == nil {
			list, err := s.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String(), FieldSelector: fields.Everything().String()})
			if err == nil {
				for i := range list.Items {
					if at := s.serves(&list.Items[i]); at != "" {
						all = append(all, at)
					}
				}
			}
		}
		if ctx.Err() == nil {
			s.targets.Store(&all)
		}
	}
}

func (s *site) serves(pod *corev1.Pod) string {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
	l, ok := s.ports.Load(pod.UID)
	if !ready || pod.DeletionTimestamp != nil || !ok {
		return ""
	}
	return l.(node.Listener).At(8080)
}

func (s *site) await(limit time.Duration, what string, holds func(context.Context) error) {
	s.t.Helper()
	poll.Until(s.t, limit, what, holds)
}

func (s *site) allReady(ctx context.Context, n int) error {
	list, err := s.client.Resource(subscriptions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for i := range list.Items {
		if is, _, _ := unstructured.NestedBool(list.Items[i].Object, "status", "ready"); is {
			ready++
		}
	}
	if targets := s.targets.Load(); targets == nil || len(*targets) == 0 {
		return errors.New("no publisher is ready")
	}
	if ready != n {
		return fmt.Errorf("%d of %d Subscriptions are ready", ready, n)
	}
	return nil
}

// alone: the operator of one and the controller of the other never ran at the same time, and
// Kyma's programs did nothing that they may not.
func (s *site) alone() {
	s.t.Helper()
	if refused := s.kyma.Refused(); len(refused) > 0 {
		s.t.Errorf("the stand-in does what Kyma's programs may not: %v", refused)
	}
	if n := s.both.Load(); n > 0 {
		s.t.Errorf("both delivered, and wrote one status, for some %d ms", 50*n)
	}
}

func (s *site) get(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	s.t.Helper()
	u, err := s.client.Resource(gvr).Namespace(namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	s.check(err)
	return u
}

// replicas of a Deployment.
func (s *site) replicas(name string) int64 {
	s.t.Helper()
	n, _, _ := unstructured.NestedInt64(s.get(deployments, name).Object, "spec", "replicas")
	return n
}

// flat is a text without the ends of its lines.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// takeOver runs kubectl eventing take-over.
func (s *site) takeOver(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	p := process.Run(s.t, s.command(args...))
	return p.Wait(), p.Stdout(), p.Stderr()
}

func (s *site) command(args ...string) process.Program {
	s.t.Helper()
	all := append([]string{"take-over"}, args...)
	return process.Program{Binary: process.BuildPlain(s.t, program), Args: append(all, s.monitors()...), Dir: s.t.TempDir(), Env: []string{"KUBECONFIG=" + cluster.Kubeconfig, "PATH=" + os.Getenv("PATH")}}
}

// monitors are the flags that name the servers of NATS.
func (s *site) monitors() (flags []string) {
	s.t.Helper()
	if s.pods == nil {
		return nil
	}
	for _, pod := range []string{"eventing-nats-0", prefix + "-nats-0"} {
		url, err := s.pods.NATS.Monitor(namespace, pod)
		s.check(err)
		flags = append(flags, "--monitor="+pod+"="+strings.TrimPrefix(url, "http://"))
	}
	return flags
}

// load publishes events, each until it is accepted.
type load struct {
	s        *site
	n        int
	stop     atomic.Bool
	done     sync.WaitGroup
	mu       sync.Mutex
	accepted [][]string // IDs by the number of the Subscription
	refused  map[string]int
	last     time.Time     // when the newest one was accepted
	longest  time.Duration // time without an accepted event
}

// publish begins to publish events for n Subscriptions.
func (s *site) publish(n, workers int, pause time.Duration) *load {
	l := &load{s: s, n: n, accepted: make([][]string, n), refused: map[string]int{}, last: time.Now()}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	for w := range workers {
		l.done.Go(func() {
			for i := 0; !l.stop.Load(); i++ {
				of, id := (w+i*workers)%n, fmt.Sprintf("%d-%d", w, i)
				for !l.one(client, of, id) {
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(pause)
			}
		})
	}
	return l
}

func (l *load) one(client *http.Client, of int, id string) bool {
	why := ""
	targets := l.s.targets.Load()
	if targets == nil || len(*targets) == 0 {
		why = "no publisher"
	} else {
		at := (*targets)[rand.IntN(len(*targets))] //nolint:gosec // nobody has to be kept from guessing it
		q, _ := http.NewRequest(http.MethodPost, "http://"+at+"/publish", bytes.NewReader(fmt.Appendf(nil, `{"n":%q}`, id)))
		for name, value := range map[string]string{"ce-specversion": "1.0", "ce-id": id, "ce-source": "commerce", "ce-type": fmt.Sprintf("order.created.v%d", of), "content-type": "application/json"} {
			q.Header.Set(name, value)
		}
		res, err := client.Do(q)
		if err != nil {
			why = "no answer"
		} else {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode != http.StatusNoContent {
				why = res.Status
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if why != "" {
		l.refused[why]++
		return false
	}
	l.accepted[of] = append(l.accepted[of], id)
	now := time.Now()
	l.longest, l.last = max(l.longest, now.Sub(l.last)), now
	return true
}

// count is how many were accepted until now.
func (l *load) count() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ids := range l.accepted {
		n += len(ids)
	}
	return n
}

// end stops publishing, and waits until each accepted event is delivered. It returns how many were
// accepted, and how many were delivered more than once.
func (l *load) end() (accepted, twice int) {
	t := l.s.t
	t.Helper()
	l.stop.Store(true)
	l.done.Wait()
	accepted = l.count()
	var lost int
	err := poll.For(context.WithoutCancel(t.Context()), poll.Within(90*time.Second), "all events are delivered", func(context.Context) error {
		if lost, twice = l.delivered(); lost > 0 {
			return fmt.Errorf("%d of %d are missing", lost, accepted)
		}
		return nil
	})
	t.Logf("%d events were accepted, %d lost, %d delivered twice (%v); refused and repeated: %v; longest time without an accepted event %s",
		accepted, lost, twice, l.whoTwice(), l.refused, l.longest.Round(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	return accepted, twice
}

// whoTwice tells who has delivered events that came more than once, and how far apart.
func (l *load) whoTwice() map[string]int {
	who := map[string]int{}
	for i := range l.accepted {
		first := map[string]sinks.Request{}
		for _, r := range l.s.sinks.Of(fmt.Sprintf("s%d", i)) {
			f, again := first[r.ID]
			if !again {
				first[r.ID] = r
				continue
			}
			by := func(r sinks.Request) string {
				if strings.HasPrefix(r.Header.Get("User-Agent"), "eventing-controller") {
					return "ours"
				}
				return "Kyma's"
			}
			who[fmt.Sprintf("%s, and %s after some %s", by(f), by(r), r.At.Sub(f.At).Round(10*time.Second))]++
		}
	}
	return who
}

// delivered counts what its sink has yet to get, and what it has got more than once.
func (l *load) delivered() (missing, twice int) {
	for i, ids := range l.accepted {
		got := map[string]int{}
		for _, id := range l.s.sinks.IDs(fmt.Sprintf("s%d", i)) {
			if got[id]++; got[id] > 1 {
				twice++
			}
		}
		for _, id := range ids {
			if got[id] == 0 {
				missing++
			}
		}
	}
	return missing, twice
}
