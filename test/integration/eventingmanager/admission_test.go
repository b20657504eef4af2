package eventingmanager_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

const mirror = "mirror.example/"

// mirrored has the API server take all images of Deployments and StatefulSets of the site from a
// mirror, as policies of Kyverno and webhooks of providers do.
func (s *site) mirrored() {
	s.t.Helper()
	cluster.Mutate(s.t, kubernetes.Mutation{
		Name: "mirror-" + s.namespace, Namespace: s.namespace, Group: "apps", Resources: []string{"deployments", "statefulsets"},
		Patch: `object.spec.template.spec.containers[0].image.startsWith("` + mirror + `") ? [] :
			[JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", value: "` + mirror + `" + object.spec.template.spec.containers[0].image}]`,
	})
}

func image(workload *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	first, _ := containers[0].(map[string]any)
	name, _ := first["image"].(string)
	return name
}

// TestMirroredImages: a policy of the cluster changes what the operator applies. The operator does
// not fight it, says so, and still repairs what somebody else changes.
func TestMirroredImages(t *testing.T) {
	s := newSite(t, "mirrored")
	s.mirrored()
	s.start()
	s.installed()
	for _, name := range []string{"eventing-controller", "eventing-publisher-proxy"} {
		u, err := s.get(deployments, name)
		s.check(err)
		if !strings.HasPrefix(image(u), mirror) {
			t.Errorf("the image of %s is %s", name, image(u))
		}
	}
	e := s.await(time.Minute, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionSpecApplied, operatorv1alpha1.ReasonApplied)
	c := meta.FindStatusCondition(e.Status.Conditions, operatorv1alpha1.ConditionSpecApplied)
	for _, want := range []string{"Deployment eventing-controller: spec.template.spec.containers[controller].image is \"" + mirror, "kubectl get mutatingwebhookconfigurations"} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("the message lacks %s: %s", want, c.Message)
		}
	}

	mark, err := cluster.Mark(t.Context())
	s.check(err)
	time.Sleep(10 * time.Second) // that nothing happens cannot be awaited
	done, err := cluster.Requests(t.Context(), mark, writes)
	s.check(err)
	if len(done) > 1 {
		t.Errorf("an idle operator writes: %v", done)
	}

	mark, err = cluster.Mark(t.Context())
	s.check(err)
	s.patch(deployments, "eventing-controller", `{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":7}}}}`)
	poll.Until(t, 10*time.Second, "what somebody has changed is repaired", func(context.Context) error {
		u, err := s.get(deployments, "eventing-controller")
		if err != nil {
			return err
		}
		if seconds, _, _ := unstructured.NestedInt64(u.Object, "spec", "template", "spec", "terminationGracePeriodSeconds"); seconds == 7 {
			return fmt.Errorf("it has %d seconds", seconds)
		}
		return nil
	})
	s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
	// Before its first apply, the operator makes what it has created its own, if the Deployment
	// controller wrote between: that write changes managedFields only.
	done, err = cluster.Requests(t.Context(), mark, func(r kubernetes.Request) bool {
		owned := r.Verb == "patch" && !strings.Contains(r.URI, "force=true")
		return writes(r) && r.Name == "eventing-controller" && r.Resource == "apps/deployments" && r.Code < 300 && !owned
	})
	s.check(err)
	if len(done) != 1 {
		t.Errorf("%d writes, want 1: %v", len(done), done)
	}
}
