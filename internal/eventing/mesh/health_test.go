package mesh

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// TestChannelOfALaterManifest: Knative serves Triggers before Channels, when its manifests are
// applied one after the other.
func TestChannelOfALaterManifest(t *testing.T) {
	t.Parallel()
	names := backend.Names(backend.DefaultPrefix)
	channel := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": channels.GroupVersion().String(), "kind": "InMemoryChannel", "metadata": map[string]any{"namespace": "control", "name": names.BrokerChannel()},
		"spec": map[string]any{"subscribers": []any{map[string]any{"subscriberUri": "http://broker-filter.knative-eventing.svc.cluster.local/triggers/control/es-1/former"}}},
	}}
	client := fakeClient(channel)
	served := false
	client.PrependReactor("list", channels.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return !served, nil, apierrors.NewNotFound(channels.GroupResource(), "")
	})
	in := testTrigger(client, names)
	defer in.Leave()
	follow := func(want bool, when string) {
		t.Helper()
		if err := in.Follow(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if _, is := in.seen(); (is != nil) != want {
			t.Errorf("%s, the Channel is followed: %v", when, is != nil)
		}
	}
	follow(false, "before its kind is served")
	served = true
	follow(false, "right after that")
	in.channelAsked = time.Now().Add(-channelAgain)
	follow(true, "a minute later")

	known, followed := in.seen()
	if left, err := in.health.leftovers(t.Context(), known, followed); err != nil || len(left) != 1 || left[0] != "es-1" {
		t.Errorf("left are %q, %v", left, err)
	}
	if err := in.health.refuses(t.Context(), known, followed); err != nil {
		t.Errorf("while Knative has its time: %v", err)
	}
	in.health.leftSince = time.Now().Add(-in.health.every)
	if err := in.health.refuses(t.Context(), known, followed); err == nil {
		t.Error("after that, the mesh does not refuse")
	}
}
