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
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
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
}

func newMeshRig(t *testing.T) *meshRig {
	t.Helper()
	if err := cluster.InstallCRDs(t.Context(), kubernetes.KnativeV1, kubernetes.Kinds("triggers.eventing.knative.dev", "brokers.eventing.knative.dev")); err != nil {
		t.Fatal(err)
	}
	r := &meshRig{rig: newRig(t, true), url: "http://127.0.0.1:1/"}
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

// awaitTriggers waits until there are Triggers for these types and no other ones, all for the
// present Broker, and returns them by type.
func (r *meshRig) awaitTriggers(eventTypes ...string) map[string]*unstructured.Unstructured {
	r.t.Helper()
	all := map[string]*unstructured.Unstructured{}
	poll.Until(r.t, limit, fmt.Sprintf("there are Triggers for %q", eventTypes), func(ctx context.Context) error {
		list, err := r.triggers(ctx)
		if err != nil {
			return err
		}
		clear(all)
		for i := range list {
			eventType, _, _ := unstructured.NestedString(list[i].Object, "spec", "filter", "attributes", "type")
			if list[i].GetAnnotations()["eventing.kyma-project.io/broker"] != string(r.broker) {
				return fmt.Errorf("the Trigger of %s is for another Broker", eventType)
			}
			all[eventType] = &list[i]
		}
		for _, eventType := range eventTypes {
			if all[eventType] == nil {
				return fmt.Errorf("%s has none, of %d", eventType, len(list))
			}
		}
		if len(list) != len(eventTypes) {
			return fmt.Errorf("there are %d", len(list))
		}
		return nil
	})
	return all
}

// knative says what Knative says of Triggers, and lets a probe come through those that are ready.
func (r *meshRig) knative(status string, of map[string]*unstructured.Unstructured) {
	r.t.Helper()
	r.ready(status, of)
	for _, u := range of {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"eventing.kyma-project.io/reached":%q}}}`, u.GetUID())
		if _, err := r.client.Resource(triggers).Namespace(r.control).Patch(r.t.Context(), u.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *meshRig) ready(status string, of map[string]*unstructured.Unstructured) {
	r.t.Helper()
	for _, u := range of {
		patch := fmt.Sprintf(`{"status":{"observedGeneration":%d,"conditions":[{"type":"Ready","status":%q,"reason":"Tested"}]}}`, u.GetGeneration(), status)
		if _, err := r.client.Resource(triggers).Namespace(r.control).Patch(r.t.Context(), u.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			r.t.Fatal(err)
		}
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
			subscriber["uri"], _, _ = strings.Cut(uri, ".")
		}
	}
	return spec
}

// TestTriggers follows the Triggers of a Subscription from their creation to their deletion.
func TestTriggers(t *testing.T) {
	r := newMeshRig(t)
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	r.controller("pod-1", "--lease-duration=15s") // of several processes, other tests tell
	r.subscribe("orders", "order.created.v1", "")
	first := r.awaitTriggers("order.created.v1")
	trigger := first["order.created.v1"]
	wantSpec := map[string]any{
		"broker": "eventing",
		"filter": map[string]any{"attributes": map[string]any{"type": "order.created.v1", "source": "commerce"}},
		"filters": []any{map[string]any{
			"cesql": "(EXISTS knativekymaprobe AND knativekymaprobe = 'all') OR (type = 'order.created.v1' AND source = 'commerce')",
		}},
		"subscriber": map[string]any{
			"ref": map[string]any{"apiVersion": "v1", "kind": "Service", "namespace": r.control, "name": "eventing-controller"},
			"uri": "/deliver/" + r.namespace + "/orders?trigger=" + trigger.GetName(),
		},
	}
	if diff := cmp.Diff(wantSpec, lasting(trigger)); diff != "" {
		t.Errorf("spec of the Trigger (-want +got):\n%s", diff)
	}
	s := r.await("orders", "not ready before its Trigger", onMesh(epoch, false))
	if trigger.GetName() != backend.TriggerName(string(s.UID), "commerce", false, "order.created.v1") {
		t.Errorf("the Trigger is called %s", trigger.GetName())
	}
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
	r.knative("True", first)
	r.await("orders", "ready", onMesh(epoch, true))

	// Types and matching: other Triggers, and no filter is updated.
	r.patch("orders", `{"spec": {"types": ["order.created.v1", "order.paid.v1"]}}`)
	both := r.awaitTriggers("order.created.v1", "order.paid.v1")
	if both["order.created.v1"].GetUID() != trigger.GetUID() || both["order.created.v1"].GetGeneration() != trigger.GetGeneration() {
		t.Error("the Trigger of a type that stayed was written")
	}
	r.await("orders", "not ready before each Trigger", onMesh(epoch, false))
	r.knative("True", both)
	r.await("orders", "ready with two types", onMesh(epoch, true))
	const named = "sap.kyma.custom.commerce.order.paid.v1"
	r.patch("orders", `{"spec": {"types": ["`+named+`"], "source": "", "typeMatching": "exact"}}`)
	poll.Until(t, limit, "any source", func(context.Context) error {
		now := r.awaitTriggers(named)[named]
		if source, ok, _ := unstructured.NestedString(now.Object, "spec", "filter", "attributes", "source"); ok || now.GetUID() == both["order.paid.v1"].GetUID() {
			return fmt.Errorf("the source is %q", source)
		}
		return nil
	})
	paid := r.awaitTriggers(named)
	r.knative("True", paid)
	r.await("orders", "ready with any source", onMesh(epoch, true))

	// A new epoch, in which the mesh serves as before: the Trigger stays as it is.
	former := epoch
	epoch = r.serveMesh(operatorv1alpha1.EventMesh)
	r.await("orders", "ready in the new epoch", onMesh(epoch, true))
	marked := r.awaitTriggers(named)[named]
	if marked.GetUID() != paid[named].GetUID() || marked.GetAnnotations()[backend.EpochAnnotation] != former {
		t.Errorf("after a new epoch the Trigger has annotations %v", marked.GetAnnotations())
	}

	// Somebody edits it.
	for reason, patch := range map[string]string{
		"another filter":         `{"spec":{"filter":{"attributes":{"type":"` + named + `","color":"blue"}}}}`,
		"later filters":          `{"spec":{"filters":[{"exact":{"type":"a.b"}}]}}`,
		"another sink":           `{"spec":{"subscriber":{"uri":"/deliver/a/b"}}}`,
		"the labels are removed": `{"metadata":{"labels":null}}`,
	} {
		before := r.awaitTriggers(named)[named]
		if _, err := r.client.Resource(triggers).Namespace(r.control).Patch(t.Context(), before.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		poll.Until(t, limit, reason+": it is as it was", func(ctx context.Context) error {
			list, err := r.triggers(ctx)
			if err == nil && (len(list) != 1 || !cmp.Equal(lasting(&list[0]), lasting(before)) || list[0].GetAnnotations()[backend.EpochAnnotation] != former) {
				err = fmt.Errorf("%v", list)
			}
			return err
		})
		after := r.awaitTriggers(named)
		if edited := !strings.Contains(patch, "labels"); edited == (after[named].GetUID() == before.GetUID()) {
			t.Errorf("%s: the Trigger was created again: %v, want %v", reason, !edited, edited)
		}
		r.knative("True", after)
		r.await("orders", reason+": ready again", onMesh(epoch, true))
	}

	// One of an earlier version, whose filter lets no probe of all Triggers through, stays.
	before := r.awaitTriggers(named)[named]
	if _, err := r.client.Resource(triggers).Namespace(r.control).Patch(t.Context(), before.GetName(), types.MergePatchType,
		[]byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:"earlier"}},"spec":{"filters":null,"subscriber":{"uri":"/deliver/%s/orders"}}}`, backend.EpochAnnotation, r.namespace)), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, limit, "the Trigger of an earlier version has the epoch", func(context.Context) error {
		is := r.awaitTriggers(named)[named]
		if is.GetUID() != before.GetUID() {
			return poll.Stop(errors.New("it was created again"))
		}
		if is.GetAnnotations()[backend.EpochAnnotation] != former {
			return fmt.Errorf("annotations %v", is.GetAnnotations())
		}
		return nil
	})

	// Another Broker of the same name: what Knative says of the Triggers is about the former one.
	if err := r.client.Resource(brokers).Namespace(r.control).Delete(t.Context(), meshBroker, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.createBroker("{}")
	epoch = r.serveMesh(operatorv1alpha1.EventMesh)
	anew := r.awaitTriggers(named)
	if anew[named].GetUID() == marked.GetUID() {
		t.Error("the Trigger of the former Broker stayed")
	}
	r.await("orders", "not ready with the new Broker", onMesh(epoch, false))
	r.knative("True", anew)
	r.await("orders", "ready with the new Broker", onMesh(epoch, true))

	// Errors in the spec.
	r.patch("orders", fmt.Sprintf(`{"spec": {"sink": %q}}`, r.sinks.URL("orders", "default")))
	r.awaitTriggers()
	r.patch("orders", fmt.Sprintf(`{"spec": {"sink": %q}}`, r.sinks.URL("orders", r.namespace)))
	r.knative("True", r.awaitTriggers(named))
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
	r.awaitTriggers()
	r.await("orders", "ready on NATS", ready)

	// Back, and the end.
	epoch = r.serveMesh(operatorv1alpha1.EventMesh)
	r.knative("True", r.awaitTriggers(named))
	r.await("orders", "ready on the mesh again", onMesh(epoch, true))
	r.delete("orders")
	poll.Until(t, limit, "the Subscription and its Trigger are gone", func(ctx context.Context) error {
		_, err := r.get(ctx, "orders")
		list, listErr := r.triggers(ctx)
		if listErr == nil && len(list) > 0 {
			listErr = errors.New("the Trigger is there")
		}
		return errors.Join(poll.Gone(err), listErr)
	})
}

// TestTriggersOfNobody: Triggers of Subscriptions that are gone are deleted, and those of others
// stay.
func TestTriggersOfNobody(t *testing.T) {
	r := newMeshRig(t)
	for name, labels := range map[string]string{
		"left":   "eventing.kyma-project.io/plane: eventmesh, app.kubernetes.io/instance: eventing",
		"theirs": "app.kubernetes.io/instance: eventing",
		"beside": "eventing.kyma-project.io/plane: eventmesh, app.kubernetes.io/instance: other",
	} {
		u := object(t, fmt.Sprintf("{apiVersion: eventing.knative.dev/v1, kind: Trigger, metadata: {name: %s, labels: {%s}}, spec: {broker: eventing, subscriber: {ref: {apiVersion: v1, kind: Service, name: eventing-controller}, uri: /deliver/%s/gone}}}", name, labels, r.namespace))
		if _, err := r.client.Resource(triggers).Namespace(r.control).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// With the mesh, and also when the mesh is left.
	for _, serving := range []operatorv1alpha1.BackendType{operatorv1alpha1.EventMesh, operatorv1alpha1.NATS} {
		r.serveMesh(serving)
		p := r.controller("pod-" + strings.ToLower(string(serving)))
		poll.Until(t, limit, "the Trigger without Subscription is deleted", func(ctx context.Context) error {
			_, err := r.client.Resource(triggers).Namespace(r.control).Get(ctx, "left", metav1.GetOptions{})
			return poll.Gone(err)
		})
		for _, name := range []string{"theirs", "beside"} {
			if _, err := r.client.Resource(triggers).Namespace(r.control).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				t.Errorf("a Trigger that is not ours: %v", err)
			}
		}
		p.Kill()
		<-p.Exited()
		u := object(t, fmt.Sprintf("{apiVersion: eventing.knative.dev/v1, kind: Trigger, metadata: {name: left, labels: {eventing.kyma-project.io/plane: eventmesh, app.kubernetes.io/instance: eventing}}, spec: {broker: eventing, subscriber: {ref: {apiVersion: v1, kind: Service, name: eventing-controller}, uri: /deliver/%s/gone}}}", r.namespace))
		if _, err := r.client.Resource(triggers).Namespace(r.control).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPausedController: a leader that was paused while another one took over writes nothing wrong
// when it goes on.
func TestPausedController(t *testing.T) {
	r := newMeshRig(t)
	first := r.controller("pod-1")
	r.subscribe("orders", "a.b", "")
	r.knative("True", r.awaitTriggers("a.b"))
	r.followed(t, "pod-1")
	r.controller("pod-2")
	first.Signal(syscall.SIGSTOP)
	// The paused one does not know that the type was removed, and is wanted again.
	r.patch("orders", `{"spec": {"types": ["c.d"]}}`)
	r.followed(t, "pod-2")
	r.knative("True", r.awaitTriggers("c.d"))
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	r.patch("orders", `{"spec": {"types": ["a.b"]}}`)
	second := r.awaitTriggers("a.b")
	r.knative("True", second)
	r.await("orders", "ready", onMesh(epoch, true))
	first.Signal(syscall.SIGCONT)
	if code := first.Wait(); code != 1 {
		t.Errorf("the paused leader ends with %d", code)
	}
	if after := r.awaitTriggers("a.b"); after["a.b"].GetUID() != second["a.b"].GetUID() {
		t.Error("the Trigger was created again")
	}
	if s := r.await("orders", "ready", onMesh(epoch, true)); s.Status.Ready {
		r.followed(t, "pod-2")
	}
}

// TestLateProbes: a probe that came through a Trigger says nothing about a later one of the same
// name, whichever process gets it.
func TestLateProbes(t *testing.T) {
	r := newMeshRig(t)
	r.serveMesh(operatorv1alpha1.EventMesh)
	urls := []string{r.listening("pod-1")}
	r.followed(t, "pod-1")
	urls = append(urls, r.listening("pod-2"))
	r.subscribe("orders", "a.b", "")
	uri := func(u *unstructured.Unstructured) string {
		text, _, _ := unstructured.NestedString(u.Object, "spec", "subscriber", "uri")
		return text
	}
	probe := func(url, uri string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+uri, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		q.Header = http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/probe"}, "Ce-Type": {"probe"}, "Ce-Knativekymaprobe": {"all"}}
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusNoContent {
			t.Fatalf("the probe is answered with %d, %v", answer.StatusCode, err)
		}
	}
	reached := func(eventTypes ...string) map[string]*unstructured.Unstructured {
		t.Helper()
		var all map[string]*unstructured.Unstructured
		poll.Until(t, limit, fmt.Sprintf("the Triggers of %q are reached", eventTypes), func(context.Context) error {
			all = r.awaitTriggers("a.b", "c.d")
			for _, of := range eventTypes {
				if all[of].GetAnnotations()["eventing.kyma-project.io/reached"] != string(all[of].GetUID()) {
					return fmt.Errorf("that of %s is not", of)
				}
			}
			return nil
		})
		return all
	}
	for _, url := range urls {
		r.patch("orders", `{"spec": {"types": ["a.b", "c.d"]}}`)
		former := r.awaitTriggers("a.b", "c.d")
		probe(url, uri(former["a.b"]))
		reached("a.b")
		r.patch("orders", `{"spec": {"types": ["e.f"]}}`)
		r.awaitTriggers("e.f")
		r.patch("orders", `{"spec": {"types": ["a.b", "c.d"]}}`)
		now := r.awaitTriggers("a.b", "c.d")
		if now["a.b"].GetName() != former["a.b"].GetName() || now["a.b"].GetUID() == former["a.b"].GetUID() {
			t.Fatalf("the Trigger was not created again, or has another name: %s, %s", former["a.b"].GetName(), now["a.b"].GetName())
		}
		probe(url, uri(former["a.b"])) // the late one
		probe(url, uri(now["c.d"]))    // is written with it, or later
		if after := reached("c.d")["a.b"].GetAnnotations()["eventing.kyma-project.io/reached"]; after != "" {
			t.Errorf("a probe that came through the former Trigger is believed of the present one: %q", after)
		}
		probe(url, uri(now["a.b"]))
		reached("a.b", "c.d")
		r.patch("orders", `{"spec": {"types": ["e.f"]}}`)
		r.awaitTriggers("e.f")
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
	r.subscribe("orders", "order.created.v1", "")
	r.knative("True", r.awaitTriggers("order.created.v1"))
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
	for i, url := range urls {
		header := http.Header{"Ce-Knativearrivaltime": {"2026-11-23T10:00:00Z"}, "Kn-Namespace": {r.control}, "User-Agent": {"Go-http-client/1.1"}}
		for name, values := range m.Header {
			if name != jetstream.MsgIDHeader {
				header[http.CanonicalHeaderKey(name)] = values
			}
		}
		var got reply
		poll.Until(t, limit, "the process listens", func(ctx context.Context) (err error) {
			got, err = ask(ctx, http.MethodPost, url+"/deliver/"+r.namespace+"/orders", header, string(m.Data))
			return err
		})
		if got.status != http.StatusNoContent || got.body != "" {
			t.Errorf("process %d answers %s", i, got)
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
		if got, err := ask(t.Context(), http.MethodPost, url+"/deliver/"+r.namespace+"/gone", header, ""); err != nil || got.status != http.StatusNoContent {
			t.Errorf("a Subscription that is gone: %s, %v", got, err)
		}
	}
	// A Subscription with errors: refused, and not dropped.
	r.patch("orders", fmt.Sprintf(`{"spec": {"sink": %q}}`, r.sinks.URL("orders", "default")))
	poll.Until(t, limit, "the events of a Subscription with errors are refused", func(ctx context.Context) error {
		got, err := ask(ctx, http.MethodPost, urls[1]+"/deliver/"+r.namespace+"/orders", http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"2"}, "Ce-Source": {"commerce"}, "Ce-Type": {"order.created.v1"}}, "")
		if err == nil && got.status != http.StatusServiceUnavailable {
			err = fmt.Errorf("%s", got)
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
func (r *meshRig) meshPublisher(broker string) *publisher {
	r.t.Helper()
	p := startPublisher(r.t, r.plane, func(_, _ *[]byte, b *backend.Backends) {
		mesh := backend.Set{operatorv1alpha1.EventMesh}
		*b = backend.Backends{Epoch: "e1", Serving: mesh, Accept: mesh, Mesh: &backend.MeshAddress{Broker: meshBroker, URL: broker}}
	}, "--backend=EventMesh")
	p.awaitReady()
	return p
}

// probing starts a Broker for the controller's probes alone: each goes to the subscribers of the
// Triggers whose filters let it through.
func (r *meshRig) probing(deliver string) (url string) {
	r.t.Helper()
	broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		all, err := r.triggers(q.Context())
		for i := range all {
			uri, _, _ := unstructured.NestedString(all[i].Object, "spec", "subscriber", "uri")
			eventType, _, _ := unstructured.NestedString(all[i].Object, "spec", "filter", "attributes", "type")
			_, wide, _ := unstructured.NestedSlice(all[i].Object, "spec", "filters")
			if ofAll := q.Header.Get("Ce-Knativekymaprobe") == "all"; ofAll && !wide || !ofAll && eventType != q.Header.Get("Ce-Type") {
				continue
			}
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
	r.ready("True", r.awaitTriggers(r.everyType("all")...))
	r.await("all", "a probe has come through each Trigger", onMesh(epoch, true))
	pub := r.meshPublisher(deliver + "/deliver/" + r.namespace + "/all")
	keepsContract(t, pub, r.atSink("all"))
}
