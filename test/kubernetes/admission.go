package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// Mutation is what a policy of the cluster makes of objects that are written, as those of Kyverno
// and webhooks of providers do.
type Mutation struct {
	// Name of the policy, in small letters.
	Name string
	// Namespace of the objects.
	Namespace string
	// Group and Resources are the kinds, such as "apps" and "deployments".
	Group     string
	Resources []string
	// Operations are all writes if they are empty.
	Operations []admissionv1.OperationType
	// Patch is an expression of CEL, whose value is a list of JSONPatch.
	Patch string
}

// Labelled is a Patch that adds a label and an annotation of that name, each with the value
// "policy".
func Labelled(key string) string {
	add := func(field string) string {
		return fmt.Sprintf(`(has(object.metadata.%[1]s) ? [] : [JSONPatch{op: "add", path: "/metadata/%[1]s", value: {}}]) +
			[JSONPatch{op: "add", path: "/metadata/%[1]s/" + jsonpatch.escapeKey("%[2]s"), value: "policy"}]`, field, key)
	}
	return add("labels") + " + " + add("annotations")
}

// Mutate has the API server do that until the test ends, or until end is called. It skips the test
// on a Kubernetes without such policies.
func (c *ControlPlane) Mutate(t testing.TB, m Mutation) (end func()) {
	t.Helper()
	if err := c.Lacks("MutatingAdmissionPolicy", 36); err != nil {
		t.Skip(err)
	}
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Operations) == 0 {
		m.Operations = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	}
	rule := func(group string, resources ...string) admissionv1.NamedRuleWithOperations {
		return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: append([]admissionv1.OperationType{admissionv1.Create}, m.Operations...),
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources},
		}}
	}
	// What the policy does is seen by a ConfigMap that is never stored.
	canary := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "canary-" + m.Name}}
	isCanary := fmt.Sprintf(`object.kind == "ConfigMap" && object.metadata.name == "%s"`, canary.Name)
	operations := ""
	for _, o := range m.Operations {
		operations += fmt.Sprintf(`"%s", `, o)
	}
	policies := client.AdmissionregistrationV1()
	_, err = policies.MutatingAdmissionPolicies().Create(t.Context(), &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: m.Namespace}},
				ResourceRules:     []admissionv1.NamedRuleWithOperations{rule("", "configmaps"), rule(m.Group, m.Resources...)},
			},
			MatchConditions: []admissionv1.MatchCondition{{Name: "matches", Expression: fmt.Sprintf(
				`%s || request.operation in [%s] && (%t || object.kind != "ConfigMap")`, isCanary, operations, m.Group == "" && slices.Contains(m.Resources, "configmaps"))}},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
				Expression: fmt.Sprintf(`%s ? [JSONPatch{op: "add", path: "/data", value: {"seen": "yes"}}] : (%s)`, isCanary, m.Patch),
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = policies.MutatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: m.Name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await := func(seen bool, what string) {
		poll.Until(t, 30*time.Second, what, func(ctx context.Context) error {
			is, err := client.CoreV1().ConfigMaps(m.Namespace).Create(ctx, canary, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && (is.Data["seen"] != "") != seen {
				err = errors.New("not yet")
			}
			return err
		})
	}
	remove := func() error {
		ctx := context.WithoutCancel(t.Context())
		for _, err := range []error{
			policies.MutatingAdmissionPolicyBindings().Delete(ctx, m.Name, metav1.DeleteOptions{}),
			policies.MutatingAdmissionPolicies().Delete(ctx, m.Name, metav1.DeleteOptions{}),
		} {
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		return nil
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	await(true, "the policy is applied")
	return func() {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		await(false, "the policy is not applied any more")
	}
}
