package manager

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// unserved is an API server that serves no Subscriptions now. versions are those of their
// definition; nil: there is none.
type unserved struct {
	client.Reader
	versions []string
}

// none is its list.
type none struct{ k8sutil.Source }

func (none) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: "eventing.kyma-project.io", Resource: "subscriptions"}, "")
}

func (u unserved) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if u.versions == nil || key.Name != "subscriptions.eventing.kyma-project.io" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, key.Name)
	}
	for _, version := range u.versions {
		crd := into.(*apiextensionsv1.CustomResourceDefinition)
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version})
	}
	return nil
}

// TestSubscriptionsThatCannotBeListed: that there are no Subscriptions is said only if they are not
// defined. On a979837 one "not found" was believed: a backend was opened for which no Subscription
// had a consumer, and the events were acknowledged and not stored.
func TestSubscriptionsThatCannotBeListed(t *testing.T) {
	something := map[observed.Key]*unstructured.Unstructured{{Kind: "ConfigMap", Name: "eventing-backends"}: {}}
	for _, tc := range []struct {
		reason   string
		versions []string
		ours     map[observed.Key]*unstructured.Unstructured
		fails    bool
	}{
		{"not defined", nil, something, false},
		{"only in versions of long ago", []string{"v1alpha1"}, something, false},
		{"defined, and not served now", []string{"v1alpha1", "v1alpha2"}, something, true},
		{"nothing takes events", []string{"v1alpha2"}, nil, false},
	} {
		reader := unserved{versions: tc.versions}
		ob := &observer{reader: reader, all: none{}, needs: &dependency.Observer{Reader: reader}}
		w := &observed.World{Ours: tc.ours}
		if err := ob.subscriptions(t.Context(), w); (err != nil) != tc.fails || w.Subscriptions != nil {
			t.Errorf("%s: %v, %v", tc.reason, w.Subscriptions, err)
		}
	}
}

// TestSubscription: what a decision needs is read as the types of the kind have it, also where a
// part is not as they are.
func TestSubscription(t *testing.T) {
	const status = `{"ready":true,"conditions":[{"type":"Subscription spec valid","status":"False","lastTransitionTime":"2026-11-25T10:00:00Z"},{"type":"Sink delivering","status":"False","lastTransitionTime":null}],
		"backends":[{"type":"NATS","ready":true,"observedGeneration":3,"serving":"NATS","epoch":"e1"},{"type":"EventMesh","ready":true,"observedGeneration":2,"serving":"NATS","epoch":"e1"}],"delivery":{"backlog":7}}`
	const spec = `{"sink":"http://a.shop.svc.cluster.local","source":"commerce","types":["order.created.v1"],"config":{"maxInFlightMessages":"10"}}`
	for _, tc := range []struct{ reason, metadata, spec, status string }{
		{"all", `"resourceVersion":"7","generation":3,"finalizers":["eventing.kyma-project.io"],"labels":{"eventing.kyma-project.io/skip-switch":"true"},"deletionTimestamp":"2026-11-25T10:00:00Z"`, spec, status},
		{"no status", `"generation":1`, spec, `null`},
		{"an empty status", `"generation":1`, spec, `{}`},
		{"nothing", `"generation":1`, `null`, `null`},
		{"types that are a text", `"generation":3`, `{"types":"order.created.v1"}`, status},
		{"a sink that is a number", `"generation":3`, `{"sink":7}`, `{"backends":[{"type":"NATS","ready":true,"observedGeneration":3,"epoch":"e1"}]}`},
		{"a spec that is a text", `"generation":3`, `"all"`, status},
		{"a status that is a list", `"generation":3`, spec, `[]`},
		{"a status with another type", `"generation":3`, spec, `{"conditions":[{"type":"Subscription spec valid","status":"False"}],"backends":"NATS"}`},
		{"fields of another version", `"generation":3`, `{"sink":"http://a","filter":{"filters":[]},"more":1.5}`, `{"more":true}`},
	} {
		raw := []byte(`{"apiVersion":"eventing.kyma-project.io/v1alpha2","kind":"Subscription","metadata":{"name":"orders","namespace":"shop",` + tc.metadata + `},"spec":` + tc.spec + `,"status":` + tc.status + `}`)
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		var s stored.Subscription
		if err := s.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		got := subscription(u)
		want := observed.Subscription{
			Namespace: "shop", Name: "orders", Version: s.ResourceVersion, Generation: s.Generation, Deleting: s.DeletionTimestamp != nil, Finalizer: len(s.Finalizers) > 0, Skipped: len(s.Labels) > 0,
			Valid: got.Valid, Refused: len(s.Status.Conditions) == 2, Epochs: map[operatorv1alpha1.BackendType]string{},
		}
		if len(s.Status.Backends) > 0 {
			want.Epochs[operatorv1alpha1.NATS] = "e1"
		}
		if diff := cmp.Diff(want, got); diff != "" || s.Problem != nil && got.Valid {
			t.Errorf("%s: problem %v (-want +got):\n%s", tc.reason, s.Problem, diff)
		}
		if spec, status, problem := stored.Parts(u); (problem != nil) != (s.Problem != nil) || !cmp.Equal(s.Spec, spec) || !cmp.Equal(s.Status, status) {
			t.Errorf("%s: %v, and by its type %v: %s%s", tc.reason, problem, s.Problem, cmp.Diff(s.Spec, spec), cmp.Diff(s.Status, status))
		}
	}
}
