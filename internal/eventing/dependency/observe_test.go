package dependency

import (
	"context"
	"errors"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
)

// answers is an API server that gives one answer after the other to discovery, and the last one
// again and again.
type answers struct {
	discovery.DiscoveryInterface
	all   []any // the resources of a version, or an error
	asked int
}

func (a *answers) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	a.asked++
	switch answer := a.all[min(a.asked, len(a.all))-1].(type) {
	case error:
		return nil, answer
	case []string:
		list := &metav1.APIResourceList{}
		for _, name := range answer {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		return list, nil
	}
	return nil, errors.New("no answer")
}

// definitions are those that are there, with their versions.
type definitions struct {
	client.Reader
	all map[string][]string
}

func (d definitions) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	versions, ok := d.all[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, key.Name)
	}
	crd := into.(*apiextensionsv1.CustomResourceDefinition)
	for _, version := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version, Served: true})
	}
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	return nil
}

// TestMesh: that kinds of the mesh cannot be there is said only if they are not defined. On a979837
// one "not found" was believed: the operator took the Broker for gone, asked the controller to
// serve it no more, and events that the publisher sent to it reached nobody.
func TestMesh(t *testing.T) {
	before := pauses
	pauses = []time.Duration{time.Millisecond}
	t.Cleanup(func() { pauses = before })
	none, both := error(apierrors.NewNotFound(schema.GroupResource{}, "")), []string{"brokers", "triggers"}
	defined := map[string][]string{"brokers.eventing.knative.dev": {"v1"}, "triggers.eventing.knative.dev": {"v1"}}
	for _, tc := range []struct {
		reason string
		all    []any
		crds   map[string][]string
		is     bool
		fails  bool
		target Presence // of the Broker, for an Eventing that wants the mesh
	}{
		{reason: "served", all: []any{both}, crds: defined, is: true},
		{reason: "not defined", all: []any{none}, target: Absent},
		{reason: "only in a version of long ago", all: []any{none}, crds: map[string][]string{"brokers.eventing.knative.dev": {"v1beta1"}, "triggers.eventing.knative.dev": {"v1beta1"}}, target: WrongVersion},
		{reason: "away for a moment", all: []any{none, both}, crds: defined, is: true},
		{reason: "away", all: []any{none}, crds: defined, fails: true, target: Absent},
		{reason: "half of it is away", all: []any{[]string{"brokers"}}, crds: defined, fails: true},
		{reason: "half of it is not defined", all: []any{[]string{"brokers"}}, crds: map[string][]string{"brokers.eventing.knative.dev": {"v1"}}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ob := &Observer{Reader: definitions{all: tc.crds}, Discovery: &answers{all: tc.all}}
			if is, err := ob.Mesh(t.Context()); is != tc.is || (err != nil) != tc.fails {
				t.Errorf("mesh %v, %v", is, err)
			}
			ob.Discovery = &answers{all: tc.all}
			all, err := ob.Of(t.Context(), operatorv1alpha1.EventMesh, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for _, dep := range all {
				if dep.Kind == Broker && dep.Presence != tc.target {
					t.Errorf("presence %d, want %d", dep.Presence, tc.target)
				}
			}
		})
	}
}
