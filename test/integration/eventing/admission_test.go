package eventing_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// TestTriggersThatAPolicyChanges: a policy of the cluster gives each Trigger another delivery. The
// controller says so, creates and deletes no Trigger for it, and goes on when the policy is gone.
func TestTriggersThatAPolicyChanges(t *testing.T) {
	r := newMeshRig(t)
	changes := func() (end func()) {
		return cluster.Mutate(t, kubernetes.Mutation{
			Name: "retries-" + r.control, Namespace: r.control, Group: triggers.Group, Resources: []string{triggers.Resource},
			Patch: `has(object.spec.delivery) ? [JSONPatch{op: "replace", path: "/spec/delivery/retry", value: 5}] : []`,
		})
	}
	says := func(s *eventingv1alpha2.Subscription) string {
		for _, want := range []string{"changes each Trigger in namespace " + r.control, `spec.delivery is {`, `"retry":5`, `"retry":2`, "kubectl get mutatingwebhookconfigurations"} {
			if !slices.ContainsFunc(s.Status.Conditions, func(c eventingv1alpha2.Condition) bool { return strings.Contains(c.Message, want) }) {
				return "no condition says " + want
			}
		}
		return ""
	}
	idle := func() {
		t.Helper()
		mark, err := cluster.Mark(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // that nothing happens cannot be awaited
		asked := 0
		wrote, err := cluster.Requests(t.Context(), mark, func(q kubernetes.Request) bool {
			ours := kubernetes.IsWrite(q) && kubernetes.By("eventing-controller")(q) && strings.HasPrefix(q.Resource, triggers.Group)
			if ours && strings.Contains(q.URI, "dryRun=All") {
				asked++
				return false
			}
			return ours
		})
		if err != nil || len(wrote) > 0 || asked > 3 {
			t.Errorf("it writes Triggers: %v, and asks %d times, %v", wrote, asked, err)
		}
	}

	end := changes()
	epoch := r.serveMesh(operatorv1alpha1.EventMesh)
	r.controller("pod-1", "--lease-duration=15s")
	r.subscribe("orders", "order.created.v1", "")
	r.await("orders", "it says who changes the Trigger", says)
	idle()
	end()
	is := r.awaitTrigger()
	r.comes(is)
	r.await("orders", "ready without the policy", onMesh(epoch, true))

	// The one that events come through stays, also when its next write changes it.
	end = changes()
	if _, err := r.client.Resource(triggers).Namespace(r.control).Patch(t.Context(), is.GetName(), types.MergePatchType, []byte(`{"metadata":{"annotations":{"by":"somebody"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.await("orders", "it says who changes the Trigger that there was", says)
	idle()
	if left := r.awaitTrigger(); left.GetUID() != is.GetUID() {
		t.Error("the Trigger is another one")
	}
	end()
	another := r.awaitAnother(is)
	r.comes(another)
	r.await("orders", "ready again", onMesh(epoch, true))
}
