package eventingmanager_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

const mirror = "mirror.example/"

// mirrored has the API server take all images of Deployments and StatefulSets of the site from a
// mirror, as policies of Kyverno and webhooks of providers do. It returns when that is so.
func (s *site) mirrored() (end func()) {
	s.t.Helper()
	name := "mirror-" + s.namespace
	policies := s.core.AdmissionregistrationV1()
	_, err := policies.MutatingAdmissionPolicies().Create(s.t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments", "statefulsets"}},
				}}},
			},
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConditions:    []admissionregistrationv1.MatchCondition{{Name: "other", Expression: "!object.spec.template.spec.containers[0].image.startsWith('" + mirror + "')"}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", value: "` + mirror + `" + object.spec.template.spec.containers[0].image}]`},
			}},
		},
	}, metav1.CreateOptions{})
	s.check(err)
	_, err = policies.MutatingAdmissionPolicyBindings().Create(s.t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{})
	s.check(err)
	end = func() {
		ctx := context.WithoutCancel(s.t.Context())
		_ = policies.MutatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})
		_ = policies.MutatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})
	}
	s.t.Cleanup(end)
	probe := object(s.t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: probe}, spec: {replicas: 0, selector: {matchLabels: {app: probe}},
  template: {metadata: {labels: {app: probe}}, spec: {containers: [{name: probe, image: probe}]}}}}`)
	poll.Until(s.t, 30*time.Second, "the policy is in force", func(ctx context.Context) error {
		is, err := s.client.Resource(deployments).Namespace(s.namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if image(is) != mirror+"probe" {
			return errors.New("it changes nothing yet")
		}
		return nil
	})
	return end
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
	done, err = cluster.Requests(t.Context(), mark, func(r kubernetes.Request) bool {
		return writes(r) && r.Name == "eventing-controller" && r.Resource == "apps/deployments" && r.Code < 300
	})
	s.check(err)
	if len(done) != 1 {
		t.Errorf("%d writes, want 1: %v", len(done), done)
	}
}
