package eventing_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// inMemoryChannels is the kind that Knative's Broker has by default, with the fields of
// config/channels/in-memory-channel/resources/in-memory-channel.yaml of Knative Eventing that a
// test needs.
const inMemoryChannels = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: inmemorychannels.messaging.knative.dev}
spec:
  group: messaging.knative.dev
  scope: Namespaced
  names: {kind: InMemoryChannel, plural: inmemorychannels, singular: inmemorychannel}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`

var channels = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1", Resource: "inmemorychannels"}

// subscriberOf is what Knative writes into the Channel of a Broker for a Trigger.
func subscriberOf(namespace, name string, uid types.UID) any {
	return map[string]any{
		"uid": uuid.NewString(), "generation": int64(1), "replyUri": "http://broker-ingress.knative-eventing.svc.cluster.local/" + namespace + "/" + meshBroker,
		"subscriberUri": fmt.Sprintf("http://broker-filter.knative-eventing.svc.cluster.local/triggers/%s/%s/%s", namespace, name, uid),
		"delivery":      map[string]any{"retry": int64(2), "backoffDelay": "PT0.2S"},
	}
}

// fan writes the subscribers of the Broker's Channel, as Knative does.
func (r *meshRig) fan(subscribers ...any) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "messaging.knative.dev/v1", "kind": "InMemoryChannel", "spec": map[string]any{"subscribers": subscribers}}}
	u.SetName(backend.Names(backend.DefaultPrefix).BrokerChannel())
	if _, err := r.client.Resource(channels).Namespace(r.control).Apply(r.t.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "knative", Force: true}); err != nil {
		r.t.Fatal(err)
	}
}

// newFanRig is a meshRig with the kind of the Broker's Channel.
func newFanRig(t *testing.T) *meshRig {
	t.Helper()
	if err := cluster.InstallCRDFiles(t.Context(), fstest.MapFS{"channels/in-memory.yaml": {Data: []byte(inMemoryChannels)}}, "channels"); err != nil {
		t.Fatal(err)
	}
	return newMeshRig(t)
}

// TestSubscribersThatKnativeLeaves: a subscriber of a Trigger that is gone makes Knative refuse
// each event. The status says so, and what helps.
func TestSubscribersThatKnativeLeaves(t *testing.T) {
	r := newFanRig(t)
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	theirs, err := r.client.Resource(triggers).Namespace(r.control).Create(t.Context(),
		object(t, "{apiVersion: eventing.knative.dev/v1, kind: Trigger, metadata: {name: theirs}, spec: {broker: eventing, subscriber: {uri: http://a.example}}}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.controller("pod-1")
	r.subscribe("orders", "order.created.v1", "")
	ours := r.awaitTrigger()
	fine := []any{
		subscriberOf(r.control, ours.GetName(), ours.GetUID()), subscriberOf(r.control, "theirs", theirs.GetUID()), subscriberOf("elsewhere", "es-1", "1"),
		map[string]any{"uid": "of-no-trigger", "subscriberUri": "http://a.example/triggers"}, map[string]any{"uid": "without-address"},
	}
	r.fan(fine...)
	r.comes(ours)
	r.await("orders", "ready", onMesh(epoch, true))
	for name, left := range map[string]any{"es-1": subscriberOf(r.control, "es-1", "2"), "theirs": subscriberOf(r.control, "theirs", "of-before")} {
		r.fan(append([]any{left}, fine...)...)
		r.await("orders", "not ready while there is a subscriber of "+name, func(s *eventingv1alpha2.Subscription) string {
			want := fmt.Sprintf("Channel %[1]s/eventing-kne-trigger has a subscriber for Trigger %[2]s, which is deleted: Knative refuses each event because of it, and only a new Broker helps", r.control, name)
			for _, c := range s.Status.Conditions {
				if strings.Contains(c.Message, want) {
					return onMesh(epoch, false)(s)
				}
			}
			return "no condition says so"
		})
		r.told("has a subscriber for Trigger " + name)
		r.fan(fine...)
		r.await("orders", "ready without it", onMesh(epoch, true))
		r.told("")
	}
}

// told waits until the operator is told that the mesh refuses events, or that it does not.
func (r *meshRig) told(want string) {
	r.t.Helper()
	poll.Until(r.t, limit, fmt.Sprintf("the operator is told %q", want), func(context.Context) error {
		if is := r.followed(r.t, "pod-1").MeshRefuses; !strings.Contains(is, want) || want == "" && is != "" {
			return fmt.Errorf("it is told %q", is)
		}
		return nil
	})
}

// TestSubscriberThatKnativeLoses: a Channel without the subscriber of the Trigger accepts events,
// and nobody gets them. Another Trigger is created, for which Knative adds one.
func TestSubscriberThatKnativeLoses(t *testing.T) {
	r := newFanRig(t)
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	r.controller("pod-1")
	r.subscribe("orders", "order.created.v1", "")
	first := r.awaitTrigger()
	of := func(u *unstructured.Unstructured) any { return subscriberOf(r.control, u.GetName(), u.GetUID()) }
	r.fan(of(first))
	r.comes(first)
	r.await("orders", "ready", onMesh(epoch, true))
	r.fan()
	second := r.awaitAnother(first)
	r.fan(of(second))
	r.comes(second)
	r.await("orders", "ready through the second Trigger", onMesh(epoch, true))
	if is := r.awaitTrigger(); is.GetUID() != second.GetUID() {
		t.Error("the Trigger that nobody gets events of stayed")
	}
}

// TestMeshThatRefuses: Knative says that all is ready, and the Broker takes no event. The status
// says so while it is so.
func TestMeshThatRefuses(t *testing.T) {
	r := newMeshRig(t)
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	r.controller("pod-1")
	r.subscribe("orders", "order.created.v1", "")
	r.comes(r.awaitTrigger())
	r.await("orders", "ready", onMesh(epoch, true))
	r.answer.Store(http.StatusUnauthorized)
	r.told("the mesh takes no event of the controller: the Broker answers 401. NATS can carry them")
	r.await("orders", "not ready", onMesh(epoch, false))
	r.answer.Store(http.StatusAccepted)
	r.told("")
	r.await("orders", "ready again", onMesh(epoch, true))
}
