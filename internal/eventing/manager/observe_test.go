package manager

import (
	"context"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
)

// unserved is an API server that serves no Subscriptions now. versions are those of their
// definition; nil: there is none.
type unserved struct {
	client.Reader
	versions []string
}

func (u unserved) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: "eventing.kyma-project.io", Resource: "subscriptions"}, "")
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
	something := map[decide.Key]*unstructured.Unstructured{{Kind: "ConfigMap", Name: "eventing-backends"}: {}}
	for _, tc := range []struct {
		reason   string
		versions []string
		ours     map[decide.Key]*unstructured.Unstructured
		fails    bool
	}{
		{"not defined", nil, something, false},
		{"only in versions of long ago", []string{"v1alpha1"}, something, false},
		{"defined, and not served now", []string{"v1alpha1", "v1alpha2"}, something, true},
		{"nothing takes events", []string{"v1alpha2"}, nil, false},
	} {
		reader := unserved{versions: tc.versions}
		ob := &observer{reader: reader, needs: &dependency.Observer{Reader: reader}}
		w := &decide.World{Ours: tc.ours}
		if err := ob.subscriptions(t.Context(), w); (err != nil) != tc.fails || w.Subscriptions != nil {
			t.Errorf("%s: %v, %v", tc.reason, w.Subscriptions, err)
		}
	}
}
