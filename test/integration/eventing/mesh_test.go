package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/sinks"
)

var (
	triggers = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "triggers"}
	brokers  = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "brokers"}
)

const meshBroker = "eventing"

// meshRig is a rig with the kinds of Knative, a Broker, and the mesh as the one backend. What
// Knative does, the test does: it says when a Trigger is ready. With the real Knative, see
// knative_test.go.
type meshRig struct {
	*rig
	broker types.UID
	url    string // of the Broker
	// answer is the status with which the Broker answers an event. It posts nothing.
	answer atomic.Int32
}

func newMeshRig(t *testing.T) *meshRig {
	t.Helper()
	if err := cluster.InstallCRDs(t.Context(), kubernetes.KnativeV1, kubernetes.Kinds("triggers.eventing.knative.dev", "brokers.eventing.knative.dev")); err != nil {
		t.Fatal(err)
	}
	r := &meshRig{rig: newRig(t, true)}
	broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(r.answer.Load()))
	}))
	r.answer.Store(http.StatusAccepted)
	t.Cleanup(broker.Close)
	r.url = broker.URL
	r.asInChart()
	r.createBroker("{}")
	r.serveMesh(operatorv1alpha1.EventMesh)
	return r
}

// asInChart lets the controller have the Roles of the operator's chart. At the end, nothing must
// have been refused.
func (r *meshRig) asInChart() {
	r.t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		r.t.Fatal(err)
	}
	h, err := helm.New(r.t.Context(), root, 4)
	if err != nil {
		r.t.Fatal(err)
	}
	var rules []rbacv1.PolicyRule
	objects := operator(r.t, h, r.control)
	for _, kind := range []string{"Role", "ClusterRole"} {
		for _, role := range typed[rbacv1.ClusterRole](r.t, objects, kind) { // a Role has the same fields
			if strings.HasSuffix(":"+role.Name, ":eventing-controller") {
				rules = append(rules, role.Rules...)
			}
		}
	}
	if r.kubeconfig, err = cluster.User(r.t.Context(), "controller", rules...); err != nil {
		r.t.Fatal(err)
	}
	mark, err := cluster.Mark(r.t.Context())
	if errors.Is(err, kubernetes.ErrNoAudit) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		refused, err := cluster.Requests(context.WithoutCancel(r.t.Context()), mark, func(q kubernetes.Request) bool {
			return q.Code == http.StatusForbidden && kubernetes.By("eventing-controller")(q)
		})
		if err != nil || len(refused) > 0 {
			r.t.Errorf("the Roles of the chart lack %v, %v", refused, err)
		}
	})
}

func (r *meshRig) createBroker(spec string) {
	r.t.Helper()
	u, err := r.client.Resource(brokers).Namespace(r.control).Create(r.t.Context(), object(r.t, "{apiVersion: eventing.knative.dev/v1, kind: Broker, metadata: {name: "+meshBroker+"}, spec: "+spec+"}"), metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.broker = u.GetUID()
}

// serveMesh writes the ConfigMap of the backends with a new epoch.
func (r *meshRig) serveMesh(serving ...operatorv1alpha1.BackendType) (epoch string) {
	r.t.Helper()
	epoch = uuid.NewString()
	b := backend.Backends{Epoch: epoch, Serving: serving, Accept: serving, Mesh: &backend.MeshAddress{Broker: meshBroker, URL: r.url}}
	if b.Serving.Has(operatorv1alpha1.NATS) {
		b.NATS = &backend.NATSAddress{URL: strings.Replace(r.URL, "127.0.0.1", "localhost", 1), Stream: backend.Stream, CA: "eventing-nats-ca"}
	}
	// What the controllers write there is their own.
	r.apply(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: backend.Names(backend.DefaultPrefix).ControllerRoster()}})
	r.writeBackends(b)
	return epoch
}

// listening starts a controller to which the mesh can post, and returns its URL.
func (r *meshRig) listening(pod string) (url string) {
	r.t.Helper()
	url, _ = r.listeningAt(pod, "127.0.0.1")
	return url
}

func (r *meshRig) listeningAt(pod, host string, args ...string) (url string, p *process.Process) {
	r.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		r.t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		r.t.Fatal(err)
	}
	p = r.controller(pod, append(args, "--deliver-address="+address)...)
	poll.Until(r.t, limit, pod+" listens", func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return c.Close()
	})
	return "http://" + address, p
}

func (r *meshRig) triggers(ctx context.Context) ([]unstructured.Unstructured, error) {
	list, err := r.client.Resource(triggers).Namespace(r.control).List(ctx, metav1.ListOptions{LabelSelector: "eventing.kyma-project.io/plane=eventmesh,eventing.kyma-project.io/instance=eventing"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// awaitTrigger waits until there is one Trigger of the installation, for the present Broker, and
// returns it.
func (r *meshRig) awaitTrigger() *unstructured.Unstructured {
	r.t.Helper()
	var is *unstructured.Unstructured
	poll.Until(r.t, limit, "there is one Trigger", func(ctx context.Context) error {
		list, err := r.triggers(ctx)
		if err != nil {
			return err
		}
		if len(list) != 1 {
			return fmt.Errorf("there are %d", len(list))
		}
		if is = &list[0]; is.GetAnnotations()["eventing.kyma-project.io/broker"] != string(r.broker) {
			return errors.New("it is for another Broker")
		}
		return nil
	})
	return is
}

// awaitAnother waits until there is a Trigger beside one, and returns it.
func (r *meshRig) awaitAnother(than *unstructured.Unstructured) (is *unstructured.Unstructured) {
	r.t.Helper()
	poll.Until(r.t, limit, "there is another Trigger", func(ctx context.Context) error {
		list, err := r.triggers(ctx)
		for i := range list {
			if list[i].GetUID() != than.GetUID() {
				is = &list[i]
				return nil
			}
		}
		return errors.Join(err, errors.New("there is none"))
	})
	return is
}

// comes lets Knative say that a Trigger is ready, and a probe come through it.
func (r *meshRig) comes(through *unstructured.Unstructured) {
	r.t.Helper()
	r.ready("True", through)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"eventing.kyma-project.io/reached":%q}}}`, through.GetUID())
	if _, err := r.client.Resource(triggers).Namespace(r.control).Patch(r.t.Context(), through.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *meshRig) ready(status string, u *unstructured.Unstructured) {
	r.t.Helper()
	patch := fmt.Sprintf(`{"status":{"observedGeneration":%d,"conditions":[{"type":"Ready","status":%q,"reason":"Tested","lastTransitionTime":"2026-11-25T10:00:00Z"}]}}`, u.GetGeneration(), status)
	if _, err := r.client.Resource(triggers).Namespace(r.control).Patch(r.t.Context(), u.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		r.t.Fatal(err)
	}
}

// onMesh returns a condition for await: ready in an epoch.
func onMesh(epoch string, is bool) func(*eventingv1alpha2.Subscription) string {
	return func(s *eventingv1alpha2.Subscription) string {
		want := []eventingv1alpha2.BackendReadiness{{Type: "EventMesh", Ready: is, ObservedGeneration: s.Generation, Serving: "EventMesh", Epoch: epoch}}
		if diff := cmp.Diff(want, s.Status.Backends); diff != "" || s.Status.Ready != is {
			return "not as wanted: " + diff
		}
		if is {
			return condition(s, eventingv1alpha2.ConditionActive, eventingv1alpha2.ReasonMeshActive)
		}
		return condition(s, eventingv1alpha2.ConditionActive, eventingv1alpha2.ReasonMeshNotActive)
	}
}

// lasting is the spec of a Trigger without what tells it from an earlier one of its name.
func lasting(trigger *unstructured.Unstructured) any {
	spec := trigger.DeepCopy().Object["spec"]
	if subscriber, ok := spec.(map[string]any)["subscriber"].(map[string]any); ok {
		if uri, ok := subscriber["uri"].(string); ok {
			subscriber["uri"], _, _ = strings.Cut(uri, "=")
		}
	}
	return spec
}

// TestTrigger follows the Trigger and a Subscription from their creation to their deletion.
func TestTrigger(t *testing.T) {
	r := newMeshRig(t)
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	r.controller("pod-1", "--lease-duration=15s") // of several processes, other tests tell
	r.subscribe("orders", "order.created.v1", "")
	first := r.awaitTrigger()
	wantSpec := map[string]any{
		"broker":   "eventing",
		"delivery": map[string]any{"retry": int64(2), "backoffPolicy": "exponential", "backoffDelay": "PT0.2S", "timeout": "PT15S"},
		"filter":   map[string]any{}, // Knative's default: all events
		"subscriber": map[string]any{
			"ref": map[string]any{"apiVersion": "v1", "kind": "Service", "namespace": r.control, "name": "eventing-controller"},
			"uri": "/events?trigger",
		},
	}
	if diff := cmp.Diff(wantSpec, lasting(first)); diff != "" {
		t.Errorf("spec of the Trigger (-want +got):\n%s", diff)
	}
	s := r.await("orders", "not ready before the Trigger", onMesh(epoch, false))
	if len(s.Finalizers) != 1 || len(s.Status.Backend.Types) != 0 {
		t.Errorf("finalizers %v, consumers %v", s.Finalizers, s.Status.Backend.Types)
	}
	r.ready("Unknown", first)
	r.ready("True", first)
	r.await("orders", "ready in the eyes of Knative, and not probed", func(s *eventingv1alpha2.Subscription) string {
		for _, c := range s.Status.Conditions {
			if strings.HasSuffix(c.Message, "is ready, and no event has come through it yet") {
				return onMesh(epoch, false)(s)
			}
		}
		return "no condition says so"
	})
	r.comes(first)
	r.await("orders", "ready", onMesh(epoch, true))

	// Other types, another matching, another Subscription, a new epoch: the Trigger stays as it is.
	r.patch("orders", `{"spec": {"types": ["order.created.v1", "order.paid.v1"]}}`)
	r.await("orders", "ready with two types", onMesh(epoch, true))
	r.patch("orders", `{"spec": {"types": ["sap.kyma.custom.commerce.order.paid.v1"], "source": "", "typeMatching": "exact"}}`)
	r.subscribe("more", "order.created.v1", "")
	r.await("more", "another one is ready", onMesh(epoch, true))
	former := epoch
	epoch = r.serveMesh(operatorv1alpha1.EventMesh)
	r.await("orders", "ready in the new epoch", onMesh(epoch, true))
	if is := r.awaitTrigger(); is.GetUID() != first.GetUID() || is.GetGeneration() != first.GetGeneration() || is.GetAnnotations()[backend.EpochAnnotation] != former {
		t.Errorf("the Trigger was written: %v", is)
	}

	// Somebody edits it: it stays until events come through another one.
	for reason, patch := range map[string]string{
		"a filter":      `{"spec":{"filter":{"attributes":{"color":"blue"}}}}`,
		"later filters": `{"spec":{"filters":[{"exact":{"type":"a.b"}}]}}`,
		"another sink":  `{"spec":{"subscriber":{"uri":"/deliver/a/b"}}}`,
	} {
		before := r.awaitTrigger()
		if _, err := r.client.Resource(triggers).Namespace(r.control).Patch(t.Context(), before.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		other := r.awaitAnother(before)
		if diff := cmp.Diff(wantSpec, lasting(other)); diff != "" {
			t.Errorf("%s: spec of the other Trigger (-want +got):\n%s", reason, diff)
		}
		r.comes(other)
		r.await("orders", reason+": ready again", onMesh(epoch, true))
		if after := r.awaitTrigger(); after.GetUID() != other.GetUID() {
			t.Errorf("%s: the edited Trigger is there", reason)
		}
	}
	before := r.awaitTrigger()
	if _, err := r.client.Resource(triggers).Namespace(r.control).Patch(t.Context(), before.GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, limit, "a Trigger without labels has them again", func(context.Context) error {
		if after := r.awaitTrigger(); after.GetUID() != before.GetUID() {
			return poll.Stop(errors.New("it is another one"))
		}
		return nil
	})

	// Another Broker of the same name: what Knative says of the Trigger is about the former one.
	if err := r.client.Resource(brokers).Namespace(r.control).Delete(t.Context(), meshBroker, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	before = r.awaitTrigger()
	r.createBroker("{}")
	epoch = r.serveMesh(operatorv1alpha1.EventMesh)
	anew := r.awaitAnother(before)
	r.await("orders", "not ready with the new Broker", onMesh(epoch, false))
	r.comes(anew)
	r.await("orders", "ready with the new Broker", onMesh(epoch, true))
	if is := r.awaitTrigger(); is.GetUID() != anew.GetUID() {
		t.Error("the Trigger of the former Broker stayed")
	}

	// Errors in the spec.
	r.patch("orders", fmt.Sprintf(`{"spec": {"sink": %q}}`, r.sinks.URL("orders", "default")))
	r.await("orders", "not ready with errors", func(s *eventingv1alpha2.Subscription) string {
		if s.Status.Ready {
			return "ready"
		}
		return ""
	})
	r.patch("orders", fmt.Sprintf(`{"spec": {"sink": %q}}`, r.sinks.URL("orders", r.namespace)))
	r.await("orders", "ready without errors", onMesh(epoch, true))

	// Both backends, and then NATS alone.
	r.serveMesh(operatorv1alpha1.EventMesh, operatorv1alpha1.NATS)
	r.await("orders", "ready on both", func(s *eventingv1alpha2.Subscription) string {
		if !s.Status.Ready || len(s.Status.Backends) != 2 || !s.Status.Backends[0].Ready || !s.Status.Backends[1].Ready || s.Status.Backends[0].Serving != "EventMesh,NATS" {
			return "not ready on both"
		}
		return condition(s, eventingv1alpha2.ConditionActive, eventingv1alpha2.ReasonNATSActive)
	})
	r.serveMesh(operatorv1alpha1.NATS)
	r.awaitNoTrigger()
	r.await("orders", "ready on NATS", ready)

	// Back, and the end.
	epoch = r.serveMesh(operatorv1alpha1.EventMesh)
	last := r.awaitTrigger()
	r.comes(last)
	r.await("orders", "ready on the mesh again", onMesh(epoch, true))
	r.delete("orders")
	poll.Until(t, limit, "the Subscription is gone", func(ctx context.Context) error {
		_, err := r.get(ctx, "orders")
		return poll.Gone(err)
	})
	if is := r.awaitTrigger(); is.GetUID() != last.GetUID() {
		t.Error("the Trigger went with a Subscription")
	}
}

// TestDeletedTrigger: a Trigger that somebody deletes leads events to the controller until another
// one does.
func TestDeletedTrigger(t *testing.T) {
	r := newMeshRig(t)
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	r.controller("pod-1", "--lease-duration=15s")
	r.subscribe("orders", "order.created.v1", "")
	kind := r.client.Resource(triggers).Namespace(r.control)
	first := r.awaitTrigger()
	r.comes(first)
	r.await("orders", "ready", onMesh(epoch, true))
	remove := func(u *unstructured.Unstructured) {
		t.Helper()
		if err := kind.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(u.GetUID()))}); err != nil {
			t.Fatal(err)
		}
	}
	stays := func(u *unstructured.Unstructured, when string) {
		t.Helper()
		if is, err := kind.Get(t.Context(), u.GetName(), metav1.GetOptions{}); err != nil || is.GetUID() != u.GetUID() {
			t.Errorf("%s, the Trigger that carried events is gone: %v", when, err)
		}
	}
	goes := func(u *unstructured.Unstructured, when string) {
		t.Helper()
		poll.Until(t, limit, "a deleted Trigger is gone "+when, func(ctx context.Context) error {
			is, err := kind.Get(ctx, u.GetName(), metav1.GetOptions{})
			if err == nil && is.GetUID() != u.GetUID() {
				return nil
			}
			return poll.Gone(err)
		})
	}

	// Twice: the second one is deleted before anything comes through it.
	remove(first)
	second := r.awaitAnother(first)
	stays(first, "beside a second one")
	remove(second)
	goes(second, "for a third one")
	third := r.awaitAnother(first)
	stays(first, "beside a third one")
	r.comes(third)
	goes(first, "after the third one carries events")
	r.await("orders", "ready through the third one", onMesh(epoch, true))

	// Without the finalizer.
	if _, err := kind.Patch(t.Context(), third.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, limit, "the finalizer is back", func(context.Context) error {
		if len(r.awaitTrigger().GetFinalizers()) == 0 {
			return errors.New("it is not")
		}
		return nil
	})

	// A Broker that is gone brings no events.
	if err := r.client.Resource(brokers).Namespace(r.control).Delete(t.Context(), meshBroker, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	remove(third)
	goes(third, "without the Broker")

	// The mesh is left.
	r.createBroker("{}")
	r.serveMesh(operatorv1alpha1.EventMesh)
	last := r.awaitTrigger()
	r.comes(last)
	remove(last)
	r.awaitAnother(last)
	stays(last, "before the mesh is left")
	r.serveMesh(operatorv1alpha1.NATS)
	r.awaitNoTrigger()
}

func (r *meshRig) awaitNoTrigger() {
	r.t.Helper()
	poll.Until(r.t, limit, "there is no Trigger", func(ctx context.Context) error {
		list, err := r.triggers(ctx)
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("there are %d", len(list))
		}
		return err
	})
}

// TestTriggersOfAnEarlierVersion: they stay beside the present one, since Knative refuses all
// events after several Triggers of one Broker were deleted. They go when the mesh is left. Those of
// others stay.
func TestTriggersOfAnEarlierVersion(t *testing.T) {
	r := newMeshRig(t)
	ours := map[string]string{
		"earlier": "eventing.kyma-project.io/plane: eventmesh, eventing.kyma-project.io/instance: eventing",
		"first":   "eventing.kyma-project.io/plane: eventmesh, app.kubernetes.io/instance: eventing",
	}
	theirs := map[string]string{
		"theirs": "app.kubernetes.io/instance: eventing",
		"beside": "eventing.kyma-project.io/plane: eventmesh, app.kubernetes.io/instance: other",
	}
	create := func(all map[string]string) {
		for name, labels := range all {
			u := object(t, fmt.Sprintf("{apiVersion: eventing.knative.dev/v1, kind: Trigger, metadata: {name: %s, labels: {%s}}, spec: {broker: eventing, subscriber: {ref: {apiVersion: v1, kind: Service, name: eventing-controller}, uri: /deliver/%s/orders}}}", name, labels, r.namespace))
			if _, err := r.client.Resource(triggers).Namespace(r.control).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(theirs)
	create(ours)
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	first := r.controller("pod-1")
	var present *unstructured.Unstructured
	poll.Until(t, limit, "the present Trigger is beside the earlier ones", func(ctx context.Context) error {
		u, err := r.client.Resource(triggers).Namespace(r.control).Get(ctx, "eventing-controller", metav1.GetOptions{})
		present = u
		return err
	})
	r.subscribe("orders", "a.b", "")
	r.comes(present)
	r.await("orders", "ready through the present Trigger", onMesh(epoch, true))
	for name := range ours {
		u, err := r.client.Resource(triggers).Namespace(r.control).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || u.GetDeletionTimestamp() != nil || u.GetLabels()[backend.InstanceLabel] != "eventing" {
			t.Errorf("an earlier Trigger beside the present one: %v, %v", u, err)
		}
	}
	first.Kill()
	<-first.Exited()

	r.serveMesh(operatorv1alpha1.NATS)
	r.controller("pod-2")
	for name := range ours {
		poll.Until(t, limit, "Trigger "+name+" is deleted", func(ctx context.Context) error {
			_, err := r.client.Resource(triggers).Namespace(r.control).Get(ctx, name, metav1.GetOptions{})
			return poll.Gone(err)
		})
	}
	for name := range theirs {
		if _, err := r.client.Resource(triggers).Namespace(r.control).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("a Trigger that is not ours: %v", err)
		}
	}
}

// TestPausedController: a leader that was paused while another one took over writes nothing wrong
// when it goes on.
func TestPausedController(t *testing.T) {
	r := newMeshRig(t)
	first := r.controller("pod-1")
	r.subscribe("orders", "a.b", "")
	former := r.awaitTrigger()
	r.comes(former)
	r.followed(t, "pod-1")
	r.controller("pod-2")
	first.Signal(syscall.SIGSTOP)
	// The paused one does not know that the Trigger was replaced.
	if err := r.client.Resource(brokers).Namespace(r.control).Delete(t.Context(), meshBroker, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.createBroker("{}")
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	r.followed(t, "pod-2")
	second := r.awaitAnother(former)
	r.comes(second)
	r.await("orders", "ready", onMesh(epoch, true))
	first.Signal(syscall.SIGCONT)
	if code := first.Wait(); code != 1 {
		t.Errorf("the paused leader ends with %d", code)
	}
	if after := r.awaitTrigger(); after.GetUID() != second.GetUID() {
		t.Error("the Trigger was created again")
	}
	if s := r.await("orders", "ready", onMesh(epoch, true)); s.Status.Ready {
		r.followed(t, "pod-2")
	}
}

// TestLateProbes: a probe that came through a Trigger says nothing about a later one, whichever
// process gets it.
func TestLateProbes(t *testing.T) {
	r := newMeshRig(t)
	r.serveMesh(operatorv1alpha1.EventMesh)
	urls := []string{r.listening("pod-1")}
	r.followed(t, "pod-1")
	urls = append(urls, r.listening("pod-2"))
	uri := func(u *unstructured.Unstructured) string {
		text, _, _ := unstructured.NestedString(u.Object, "spec", "subscriber", "uri")
		return text
	}
	probe := func(url, uri string) {
		t.Helper()
		got, err := ask(t.Context(), http.MethodPost, url+uri, http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/probe"}, "Ce-Type": {"probe"}, "Ce-Knativekymaprobe": {"all"}}, "")
		if err != nil || got.status != http.StatusNoContent {
			t.Fatalf("the probe is answered with %s, %v", got, err)
		}
	}
	for _, url := range urls {
		former := r.awaitTrigger()
		if err := r.client.Resource(triggers).Namespace(r.control).Delete(t.Context(), former.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		now := r.awaitAnother(former)
		if uri(now) == uri(former) {
			t.Fatal("the Trigger cannot be told from the former one")
		}
		if _, err := r.client.Resource(triggers).Namespace(r.control).Patch(t.Context(), former.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		probe(url, uri(former)) // the late one
		probe(url, "/events?trigger=")
		probe(url, "/events")
		time.Sleep(time.Second) // nothing tells that something does not happen
		if is := r.awaitTrigger().GetAnnotations()["eventing.kyma-project.io/reached"]; is != "" {
			t.Errorf("a probe that came through the former Trigger is believed of the present one: %q", is)
		}
		probe(url, uri(now))
		poll.Until(t, limit, "the present one is reached", func(context.Context) error {
			if is := r.awaitTrigger(); is.GetAnnotations()["eventing.kyma-project.io/reached"] != string(is.GetUID()) {
				return errors.New("it is not")
			}
			return nil
		})
	}
}

// atEvents is the header of an event that the mesh posts.
func atEvents(eventType, id string) http.Header {
	return http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {id}, "Ce-Source": {"commerce"}, "Ce-Type": {eventType}}
}

// serves waits until a process serves the mesh.
func (r *meshRig) serves(url string) {
	r.t.Helper()
	poll.Until(r.t, limit, url+" serves the mesh", func(ctx context.Context) error {
		got, err := ask(ctx, http.MethodPost, url+"/events", atEvents("nobody.v1", "0"), "")
		if err == nil && got.status != http.StatusNoContent {
			err = fmt.Errorf("%s", got)
		}
		return err
	})
}

// TestReadyWhenAllKnow: a Subscription is ready when each process that may get its events knows it.
// One that is paused is waited for until it does not serve any more, and serves again when it knows
// everything.
func TestReadyWhenAllKnow(t *testing.T) {
	r := newMeshRig(t)
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	first := r.listening("pod-1")
	r.followed(t, "pod-1")
	second, paused := r.listeningAt("pod-2", "127.0.0.1")
	r.comes(r.awaitTrigger())
	r.serves(first)
	r.serves(second)

	paused.Signal(syscall.SIGSTOP)
	began := time.Now()
	r.subscribe("orders", "a.b", "")
	r.await("orders", "the one that does not know it is named", func(s *eventingv1alpha2.Subscription) string {
		for _, c := range s.Status.Conditions {
			if c.Message == "not all controllers know it yet: pod-2 does not, and is waited for up to 5s" {
				return onMesh(epoch, false)(s)
			}
		}
		return "no condition names it"
	})
	// It is posted while the process is paused, so that it is the first thing that it does.
	answer := make(chan reply, 1)
	go func() {
		got, err := ask(t.Context(), http.MethodPost, second+"/events", atEvents("a.b", "early"), "")
		if err != nil {
			t.Error(err)
		}
		answer <- got
	}()
	r.await("orders", "ready without the one that is paused", onMesh(epoch, true))
	if took := time.Since(began); took < 3*time.Second { // it may have written almost 1 s before
		t.Errorf("ready after %s, while the one that is paused may serve for up to 4 s", took)
	}
	paused.Signal(syscall.SIGCONT)
	if got := <-answer; got.status != http.StatusServiceUnavailable {
		t.Errorf("a process that was paused and may not know all Subscriptions answers %s", got)
	}
	r.serves(second)
	for i, url := range []string{first, second} {
		id := fmt.Sprintf("all-%d", i)
		if got, err := ask(t.Context(), http.MethodPost, url+"/events", atEvents("a.b", id), ""); err != nil || got.status != http.StatusNoContent {
			t.Fatalf("%s, %v", got, err)
		}
		if !slices.Contains(r.sinks.IDs("orders"), id) {
			t.Errorf("event %s was accepted, and is not at the sink", id)
		}
	}

	// One that ends in order is waited for no more.
	paused.Signal(syscall.SIGTERM)
	if code := paused.Wait(); code != 0 {
		t.Errorf("after SIGTERM, the controller exits with %d", code)
	}
	began = time.Now()
	r.subscribe("more", "c.d", "")
	r.await("more", "ready", onMesh(epoch, true))
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("ready after %s, when the other process has ended", took)
	}
}

// TestDeliver: each process delivers what the mesh posts, and a sink sees the same request as of an
// event from NATS.
func TestDeliver(t *testing.T) {
	r := newMeshRig(t)
	r.serveMesh(operatorv1alpha1.EventMesh, operatorv1alpha1.NATS)
	urls := []string{r.listening("pod-1")}
	r.followed(t, "pod-1")
	urls = append(urls, r.listening("pod-2"))
	for _, url := range urls {
		r.serves(url)
	}
	r.subscribe("orders", "order.created.v1", "")
	r.comes(r.awaitTrigger())
	r.await("orders", "ready on both", func(s *eventingv1alpha2.Subscription) string {
		if !s.Status.Ready || len(s.Status.Backends) != 2 {
			return "not ready"
		}
		return ""
	})
	r.sinks.Answer("orders", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })

	m := event("order.created.v1", "1", `{"a": "ü"}`)
	m.Header["ce-time"], m.Header["ce-extension1"], m.Header["traceparent"] = []string{"2026-11-22T10:00:00Z"}, []string{"x y"}, []string{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	if _, err := r.publisher.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.sinks.Await(t, "orders", limit, "1")
	header := http.Header{"Ce-Knativearrivaltime": {"2026-11-23T10:00:00Z"}, "Kn-Namespace": {r.control}, "User-Agent": {"Go-http-client/1.1"}}
	for name, values := range m.Header {
		if name != jetstream.MsgIDHeader {
			header[http.CanonicalHeaderKey(name)] = values
		}
	}
	for i, path := range []string{urls[0] + "/events?trigger=1", urls[1] + "/events?trigger=1"} {
		got, err := ask(t.Context(), http.MethodPost, path, header, string(m.Data))
		if err != nil || got.status != http.StatusNoContent || got.body != "" {
			t.Errorf("process %d answers %s, %v", i, got, err)
		}
		sinks := r.sinks.Of("orders")
		if len(sinks) != i+2 {
			t.Fatalf("the sink has %d requests", len(sinks))
		}
		want, is := sinks[0], sinks[i+1]
		want.At, is.At = time.Time{}, time.Time{}
		if diff := cmp.Diff(want, is); diff != "" {
			t.Errorf("process %d: the request of NATS, and that of the mesh (-NATS +mesh):\n%s", i, diff)
		}
	}
	// What a Trigger of an earlier version posts: this process has brought the event to the sink.
	for path, status := range map[string]int{"/orders": http.StatusNoContent, "/gone": http.StatusNoContent} {
		if got, err := ask(t.Context(), http.MethodPost, urls[0]+"/deliver/"+r.namespace+path, header, string(m.Data)); err != nil || got.status != status || len(r.sinks.Of("orders")) != 3 {
			t.Errorf("%s by a Trigger of an earlier version: %s, %v, %d requests", path, got, err, len(r.sinks.Of("orders")))
		}
	}
	// A Subscription with errors gets no events.
	r.patch("orders", fmt.Sprintf(`{"spec": {"sink": %q}}`, r.sinks.URL("orders", "default")))
	poll.Until(t, limit, "a Subscription with errors gets no events", func(ctx context.Context) error {
		before := len(r.sinks.Of("orders"))
		got, err := ask(ctx, http.MethodPost, urls[1]+"/events", atEvents("order.created.v1", uuid.NewString()), "")
		if err == nil && (got.status != http.StatusNoContent || len(r.sinks.Of("orders")) != before) {
			err = fmt.Errorf("%s, and %d requests more", got, len(r.sinks.Of("orders"))-before)
		}
		return err
	})
}

// atSink returns the events at a sink, one after the other, as the contract compares them. What
// every request of HTTP has is left out, and so is the second name of events of the legacy API.
func (r *meshRig) atSink(name string) func(t *testing.T, source, id string) (sent, map[string]string) {
	seen := 0
	return func(t *testing.T, _, id string) (sent, map[string]string) {
		t.Helper()
		all := slices.DeleteFunc(r.sinks.Of(name), func(g sinks.Request) bool { return backend.IsFormer(g.Header.Get("Ce-Type")) })
		if len(all) != seen+1 {
			t.Fatalf("after event %s was accepted, the sink has %d requests, want %d", id, len(all), seen+1)
		}
		g := all[seen]
		seen++
		is := sent{Subject: backend.Subject(g.Header.Get("Ce-Source"), g.Header.Get("Ce-Type")), Body: g.Body, Header: map[string]string{}}
		for name, values := range g.Header {
			switch name {
			case "User-Agent", "Content-Length", "Accept-Encoding":
			case "Ce-Originaltype":
				if values[0] != g.Header.Get("Ce-Type") {
					t.Errorf("event %s has ce-originaltype %q", id, values)
				}
			default:
				is.Header[strings.ToLower(name)] = strings.Join(values, "\n")
			}
		}
		return is, nil
	}
}

// everyType creates a Subscription to each type of the contract of its usual source.
func (r *meshRig) everyType(name string) []string {
	r.t.Helper()
	all := typesOf("")
	r.all(name, name, "commerce", all)
	return all
}

// everySource creates a Subscription for each other source of the contract, to the sink of one, and
// returns their names.
func (r *meshRig) everySource(sink string) (names []string) {
	r.t.Helper()
	var sources []string
	for i := range publisherContract {
		source := publisherContract[i].source
		if source == "" || publisherContract[i].message == nil || slices.Contains(sources, source) {
			continue
		}
		sources = append(sources, source)
		names = append(names, fmt.Sprintf("%s-%d", sink, len(sources)))
		r.all(names[len(names)-1], sink, source, typesOf(source))
	}
	return names
}

// typesOf are the types of the contract that have a source; "" is the usual one.
func typesOf(source string) (all []string) {
	for i := range publisherContract {
		if p := &publisherContract[i]; p.message != nil && p.source == source && !slices.Contains(all, p.eventType()) {
			all = append(all, p.eventType())
		}
	}
	return all
}

func (r *meshRig) all(name, sink, source string, types []string) {
	r.t.Helper()
	s := object(r.t, fmt.Sprintf("{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: %s}, spec: {sink: %q, source: %q}}", name, r.sinks.URL(sink, r.namespace), source))
	if err := unstructured.SetNestedStringSlice(s.Object, types, "spec", "types"); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client.Resource(subscriptions).Namespace(r.namespace).Create(r.t.Context(), s, strict); err != nil {
		r.t.Fatal(err)
	}
}

// meshPublisher starts a publisher that posts to a Broker.
func (r *meshRig) meshPublisher(broker string, args ...string) *publisher {
	r.t.Helper()
	p := startPublisher(r.t, r.plane, func(_, _ *[]byte, b *backend.Backends) {
		mesh := backend.Set{operatorv1alpha1.EventMesh}
		*b = backend.Backends{Epoch: "e1", Serving: mesh, Accept: mesh, Mesh: &backend.MeshAddress{Broker: meshBroker, URL: broker}}
	}, append(args, "--backend=EventMesh")...)
	p.awaitReady()
	return p
}

// probing starts a Broker that posts all that it gets to the subscriber of the Trigger.
func (r *meshRig) probing(deliver string) (url string) {
	r.t.Helper()
	broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		all, err := r.triggers(q.Context())
		for i := range all {
			uri, _, _ := unstructured.NestedString(all[i].Object, "spec", "subscriber", "uri")
			forward, bad := http.NewRequestWithContext(q.Context(), http.MethodPost, deliver+uri, http.NoBody)
			if bad == nil {
				forward.Header = q.Header.Clone()
				var answer *http.Response
				if answer, bad = http.DefaultClient.Do(forward); bad == nil {
					bad = answer.Body.Close()
				}
			}
			err = errors.Join(err, bad)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	r.t.Cleanup(broker.Close)
	return broker.URL
}

// TestMeshContract: on the mesh, each request is answered as with NATS, and a sink gets the same
// event. The Broker is left out here: the publisher posts to the controller. With the Broker of
// Knative between them, it is in knative_test.go.
func TestMeshContract(t *testing.T) {
	r := newMeshRig(t)
	deliver := r.listening("pod-1")
	r.url = r.probing(deliver)
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	r.everyType("all")
	r.ready("True", r.awaitTrigger())
	for _, name := range append(r.everySource("all"), "all") {
		r.await(name, "a probe has come through the Trigger", onMesh(epoch, true))
	}
	pub := r.meshPublisher(deliver + "/events")
	keepsContract(t, pub, r.atSink("all"))
}
