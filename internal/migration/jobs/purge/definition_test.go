package purge

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// apiextensions is an API server that has one definition, by the version.
type apiextensions struct {
	served string
	as     map[string]*unstructured.Unstructured
	answer error
	tried  *unstructured.Unstructured
	at     string
}

func (a *apiextensions) Served(_ context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	return migration.Resource{GroupVersionResource: gk.WithVersion(a.served).GroupVersion().WithResource("customresourcedefinitions"), Kind: gk.Kind}, true, nil
}

func (a *apiextensions) Get(_ context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	return a.as[ref.Version], nil
}

func (a *apiextensions) Each(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured) error) error {
	return nil
}

func (a *apiextensions) TryCreate(_ context.Context, ref migration.Ref, obj *unstructured.Unstructured) error {
	a.tried, a.at = obj, ref.Version
	return a.answer
}

// TestReadDefinition: what v1 shows may be something that v1 does not create. It
// fails on the commit before: undo of the purge ended with exit code 3 each time.
func TestReadDefinition(t *testing.T) {
	const (
		schemaless = "preserveUnknownFields: true, versions: [{name: v1alpha1, served: true, storage: true}]"
		structural = "versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]"
		kept       = "versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]"
		former     = "preserveUnknownFields: true, version: v1alpha1"
	)
	definition := func(spec string) *unstructured.Unstructured { return crd(t, spec).object }
	gr := schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	for _, tc := range []struct {
		reason  string
		server  apiextensions
		version string
		image   string
		want    definitionFound
		tried   string
		err     string
	}{
		{"made at v1: nothing is asked", apiextensions{served: "v1", as: map[string]*unstructured.Unstructured{"v1": definition(structural)}}, "v1", structural, definitionFound{}, "", ""},
		{"1.15 has v1beta1 only", apiextensions{served: "v1beta1", as: map[string]*unstructured.Unstructured{"v1beta1": definition(former)}}, "v1beta1", former, definitionFound{}, "", ""},
		{
			"1.16 to 1.21: read and created at v1beta1",
			apiextensions{served: "v1", as: map[string]*unstructured.Unstructured{"v1": definition(schemaless), "v1beta1": definition(former)}},
			"v1beta1", former, definitionFound{}, "v1beta1", "",
		},
		{
			"1.22 and later: converted",
			apiextensions{served: "v1", as: map[string]*unstructured.Unstructured{"v1": definition(schemaless)}},
			"v1", kept, definitionFound{converted: true}, "v1", "",
		},
		{
			"refused also then: as it is, for good",
			apiextensions{served: "v1", as: map[string]*unstructured.Unstructured{"v1": definition(schemaless)}, answer: apierrors.NewBadRequest("no")},
			"v1", schemaless, definitionFound{converted: true, refusal: "no"}, "v1", "",
		},
		{
			"an account that only plans",
			apiextensions{served: "v1", as: map[string]*unstructured.Unstructured{"v1": definition(schemaless)}, answer: apierrors.NewForbidden(gr, "x", errors.New("rbac"))},
			"v1", kept, definitionFound{converted: true, untried: true}, "v1", "",
		},
		{
			"no answer is no decision",
			apiextensions{served: "v1", as: map[string]*unstructured.Unstructured{"v1": definition(schemaless)}, answer: errors.New("gone")},
			"", "", definitionFound{}, "v1", "cannot find out whether CustomResourceDefinition subscriptions.eventing.kyma-project.io could be created again: gone",
		},
	} {
		s := &snapshot{}
		if err := s.readDefinition(t.Context(), &tc.server); err != nil || tc.err != "" {
			if err == nil || err.Error() != tc.err {
				t.Errorf("%s: %v", tc.reason, err)
			}
			continue
		}
		got := s.definition
		if got.ref.Version != tc.version || got.converted != tc.want.converted || got.refusal != tc.want.refusal || got.untried != tc.want.untried || tc.server.at != tc.tried {
			t.Errorf("%s: at %s, converted %t, refusal %q, untried %t, tried at %q", tc.reason, got.ref.Version, got.converted, got.refusal, got.untried, tc.server.at)
		}
		if diff := cmp.Diff(definition(tc.image).Object, got.image.Object); diff != "" {
			t.Errorf("%s: the image (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestToV1: every place that pruned nothing goes on so.
func TestToV1(t *testing.T) {
	in := crd(t, `preserveUnknownFields: true, versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {properties: {
    metadata: {type: object}, spec: {required: [a], properties: {a: {type: string}, l: {type: array, items: {type: object, properties: {x: {type: integer}}}},
      m: {type: object, additionalProperties: {type: object}}}}}}}}]`).object
	want := crd(t, `versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {
    metadata: {type: object}, spec: {type: object, x-kubernetes-preserve-unknown-fields: true, required: [a], properties: {a: {type: string},
      l: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {x: {type: integer}}}},
      m: {type: object, additionalProperties: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}}}]`).object
	before := in.DeepCopy()
	if diff := cmp.Diff(want.Object, toV1(in).Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, in); diff != "" {
		t.Errorf("what was read was changed:\n%s", diff)
	}
}
