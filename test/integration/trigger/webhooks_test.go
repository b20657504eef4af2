package trigger

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// What Knative's webhooks write of the user who made an object, and who changed it last:
// knative.dev/pkg/webhook/resourcesemantics/defaulting/user_info.go.
const (
	creator      = "messaging.knative.dev/creator"
	lastModifier = "messaging.knative.dev/lastModifier"
)

// madeBySomebody says of the Channels and Knative Subscriptions of the Event Bus that another user
// has made them. From then on, the API server writes into each new one who makes it, as Knative's
// webhooks do. One of Kyma's days has no policies for that, and leaves the annotations as they are.
func (p *plane) madeBySomebody(ctx context.Context, t *testing.T) {
	t.Helper()
	said := `{"metadata":{"annotations":{"` + creator + `":"somebody","` + lastModifier + `":"somebody"}}}`
	for _, gvr := range []schema.GroupVersionResource{p.channels(), p.links()} {
		all, err := p.client.Resource(gvr).Namespace(standin.SystemNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			if _, err := p.client.Resource(gvr).Namespace(standin.SystemNamespace).Patch(ctx, all.Items[i].GetName(), types.MergePatchType, []byte(said), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	const name = "knative-webhooks"
	add := func(annotation string) string {
		return `JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("` + annotation + `"), value: request.userInfo.username}`
	}
	for _, made := range []struct {
		resource, kind string
		spec           map[string]any
	}{
		{"mutatingadmissionpolicies", "MutatingAdmissionPolicy", map[string]any{
			"failurePolicy": "Fail", "reinvocationPolicy": "Never",
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{"messaging.knative.dev"}, "apiVersions": []any{"*"}, "operations": []any{"CREATE"}, "resources": []any{"*"},
			}}},
			"mutations": []any{map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{
				"expression": `(has(object.metadata.annotations) ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) + [` + add(creator) + ", " + add(lastModifier) + "]",
			}}},
		}},
		{"mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", map[string]any{"policyName": name}},
	} {
		gvr := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: made.resource}
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gvr.GroupVersion().String(), "kind": made.kind, "metadata": map[string]any{"name": name}, "spec": made.spec,
		}}
		_, err := p.client.Resource(gvr).Create(ctx, u, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.client.Resource(gvr).Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	poll.Until(t, time.Minute, "the API server says who makes a Channel", func(ctx context.Context) error {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": p.channels().GroupVersion().String(), "kind": "Channel", "metadata": map[string]any{"name": "probe", "namespace": standin.SystemNamespace},
		}}
		u, err := p.client.Resource(p.channels()).Namespace(standin.SystemNamespace).Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && u.GetAnnotations()[lastModifier] == "" {
			err = errors.New("it does not")
		}
		return err
	})
}
