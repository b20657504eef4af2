package scaledown

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration"
)

// stored is a cluster that holds these objects, and serves core kinds only.
type stored []*unstructured.Unstructured

func (stored) Served(context.Context, schema.GroupKind) (migration.Resource, bool, error) {
	return migration.Resource{}, false, nil
}

func (s stored) Each(_ context.Context, r migration.Resource, namespace string, opts migration.ListOptions, visit func(*unstructured.Unstructured) error) error {
	for _, obj := range s {
		if obj.GetKind() != r.Kind || namespace != "" && obj.GetNamespace() != namespace {
			continue
		}
		obj = obj.DeepCopy()
		if opts.Trim != nil {
			opts.Trim(obj)
		}
		if err := visit(obj); err != nil {
			return err
		}
	}
	return nil
}

func (s stored) List(ctx context.Context, r migration.Resource, namespace string, opts migration.ListOptions) (all []*unstructured.Unstructured, err error) {
	err = s.Each(ctx, r, namespace, opts, func(obj *unstructured.Unstructured) error {
		all = append(all, obj)
		return nil
	})
	return all, err
}

func (stored) Get(context.Context, migration.Ref) (*unstructured.Unstructured, error) {
	return nil, nil
}

// TestObserve reads a cluster through the job's own reading and trimming.
func TestObserve(t *testing.T) {
	const publisher = "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-system, name: event-bus-event-publish-service}, spec: {replicas: 1}}"
	service := func(args, status string) *unstructured.Unstructured {
		return object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-integration, name: shop-event-service, generation: 1},
  spec: {template: {spec: {containers: [{name: shop-event-service, args: ["`+args+`"]}]}}}, status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1`+status+`}}`)
	}
	const onMesh, available = "--eventMeshURL=http://shop.kyma-integration", ", availableReplicas: 1"
	bus := object(t, publisher)
	type seen struct {
		Unswitched map[string]string
		Pods       []string // of the publisher
	}
	for _, tc := range []struct {
		reason string
		s      stored
		want   seen
	}{
		{"it posts to its own adapter", stored{bus, service(onMesh, available)}, seen{}},
		{
			"its URL is empty (fails on the commit before: its name was taken for a proof)", stored{bus, service("--eventMeshURL=", available)},
			seen{Unswitched: map[string]string{"shop": "it carries an empty --eventMeshURL, not http://shop.kyma-integration"}},
		},
		{
			"its URL is that of another source (fails on the commit before)", stored{bus, service("--eventMeshURL=http://crm.kyma-integration", available)},
			seen{Unswitched: map[string]string{"shop": `it posts to the host "crm.kyma-integration" (--eventMeshURL), not to http://shop.kyma-integration`}},
		},
		{
			"its new pod takes nothing yet (fails on the commit before)", stored{bus, service(onMesh, "")},
			seen{Unswitched: map[string]string{"shop": "it is being updated: 0 of 1 pods are available"}},
		},
		{
			"a former pod outlives its Deployment and its label",
			stored{bus, object(t, "{apiVersion: v1, kind: Pod, metadata: {namespace: kyma-integration, name: old}, spec: {containers: [{name: shop-event-service}]}}")},
			seen{Unswitched: map[string]string{"shop": "Pod kyma-integration/old does not carry --eventMeshURL, so it posts to the Event Bus"}},
		},
		{
			"a pod of the publisher that lost its labels and its owner (fails on the commit before)",
			stored{bus, object(t, "{apiVersion: v1, kind: Pod, metadata: {namespace: kyma-system, name: p}, spec: {containers: [{name: event-publish-service}]}}")},
			seen{Pods: []string{"p"}},
		},
	} {
		s, err := observe(t.Context(), tc.s, New().options, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := seen{Pods: s.bus[0].pods}
		for _, e := range s.eventServices {
			if got.Unswitched == nil {
				got.Unswitched = map[string]string{}
			}
			got.Unswitched[e.application] = e.why
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
