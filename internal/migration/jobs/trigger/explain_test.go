package trigger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestExplain(t *testing.T) {
	sub := func(name string, labels map[string]any, more map[string]any) *unstructured.Unstructured {
		spec := map[string]any{
			"source_id": "commerce", "event_type": "order.created", "event_type_version": "v1",
			"endpoint": "http://me:secret@orders.shop:8080/",
		}
		for key, value := range more {
			spec[key] = value
		}
		return obj("eventing.kyma-project.io/v1alpha1", "Subscription", "shop", name, map[string]any{
			"metadata": map[string]any{"labels": labels}, "spec": spec,
		})
	}
	s := contracted()
	s.triggers = nil
	s.subscriptions = []*unstructured.Unstructured{
		sub("orders", map[string]any{"Function": "orders"}, map[string]any{"include_subscription_name_header": true}),
		sub("orders-too", map[string]any{"team": "red"}, nil),
	}
	explained := func(preview bool) (ref migration.Ref, all map[migration.Ref]*migration.Replacement) {
		d := newDecision(s, New().options)
		d.preview = preview
		d.expand()
		all = map[migration.Ref]*migration.Replacement{}
		for _, u := range d.contract(nil).Units {
			for _, ch := range u.Changes {
				if ch.Explain != nil {
					all[ch.Ref] = ch.Explain()
				}
			}
		}
		return d.groups[0].ref(s.kinds), all
	}
	ref, all := explained(true)
	if len(all) != 1 {
		t.Errorf("only the creation of a Trigger replaces anything: %v", all)
	}
	got := all[ref]
	want := &migration.Replacement{
		Of: "Subscription shop/orders, and of its equals orders-too",
		Fields: []migration.FieldMapping{
			{From: "spec.source_id: commerce", To: "spec.filter.attributes.source: commerce"},
			{From: "spec.event_type: order.created", To: "spec.filter.attributes.type: order.created"},
			{From: "spec.event_type_version: v1", To: "spec.filter.attributes.eventtypeversion: v1"},
			{From: "spec.endpoint: http://orders.shop:8080/", To: "spec.subscriber.uri: http://orders.shop:8080/"},
			{To: "spec.broker: default"},
			{From: "spec.include_subscription_name_header: true"},
			{From: "label Function: orders", To: "label Function: orders"},
			{To: "label team: red"},
			{To: "annotation " + kyma.OriginAnnotation + ": orders"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, all := explained(false); len(all) != 0 {
		t.Errorf("a run explains nothing, which would take memory: %v", all)
	}
}
