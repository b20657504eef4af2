package eventing_test

import (
	"context"
	"fmt"
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
	told := func(want bool, name string) {
		t.Helper()
		poll.Until(t, limit, "the operator is told what is so", func(context.Context) error {
			if is := r.followed(t, "pod-1").MeshRefuses; want != strings.Contains(is, "has a subscriber for Trigger "+name) || !want && is != "" {
				return fmt.Errorf("it is told %q", is)
			}
			return nil
		})
	}
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
		told(true, name)
		r.fan(fine...)
		r.await("orders", "ready without it", onMesh(epoch, true))
		told(false, name)
	}
}
