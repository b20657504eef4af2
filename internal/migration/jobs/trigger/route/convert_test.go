package route

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestNothingSecretIsSaid: whatever is in an endpoint, nobody reads it. It fails on the
// commit before: one that does not parse was quoted as it was.
func TestNothingSecretIsSaid(t *testing.T) {
	for _, endpoint := range []any{
		"http://user:hunter2@fn.shop:8080/", "http://user:hunter2%zz@fn.shop:8080/", "http://fn.shop:8080/?code=hunter2", "user:hunter2@fn.shop",
		"ftp://user:hunter2@fn.shop", "http://user:hunter2@:8080/", "http:///hunter2", map[string]any{"a": "hunter2"}, []any{"hunter2"},
	} {
		sub := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"source_id": "commerce", "event_type": "order.created", "event_type_version": "v1", "endpoint": endpoint,
		}}}
		d, why := DeliveryOf(sub)
		said := d.String()
		if why != nil {
			said += why.Problem + why.Note
		}
		if strings.Contains(said, "hunter2") {
			t.Errorf("%v: %s", endpoint, said)
		}
	}
}

// TestTriggerAsTheAPITypeHasIt compares Triggers with those that the type of
// knative.dev/eventing writes, but for its empty status. The type also writes some endpoints
// in another way: they must stay as the Subscription has them
// (docs/decisions/0001-libraries.md).
func TestTriggerAsTheAPITypeHasIt(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, version, endpoint string
		labels                    map[string]string
		rewritten                 string // what the type makes of the endpoint
	}{
		"V1":        {"as current clusters serve it", "v1", "http://fn.shop:8080/", nil, ""},
		"V1alpha1":  {"as Kyma 1.10 serves it: the fields are the same", "v1alpha1", "http://fn.shop:8080/", nil, ""},
		"V1beta1":   {"as releases in between serve it", "v1beta1", "http://fn.shop:8080/", nil, ""},
		"Labels":    {"what the Subscription is found by", "v1", "http://fn.shop", map[string]string{"a": "b"}, ""},
		"Query":     {"a key of the subscriber's", "v1", "https://u:p@fn.shop/a%2Fb?code=1&x=%20", nil, ""},
		"Fragment":  {"it means nothing, and is written", "v1", "http://fn.shop/#", nil, "http://fn.shop/"},
		"Unescaped": {"a path that a URL would escape", "v1", "http://fn.shop/a|b", nil, "http://fn.shop/a%7Cb"},
	} {
		t.Run(name, func(t *testing.T) {
			sub := &unstructured.Unstructured{Object: map[string]any{}}
			sub.SetNamespace("shop")
			sub.SetName("orders")
			sub.SetLabels(tc.labels)
			gvr := knative.Trigger.WithVersion(tc.version).GroupVersion().WithResource("triggers")
			kind := migration.Kind{GroupKind: knative.Trigger, Served: true, Resource: migration.Resource{GroupVersionResource: gvr, Kind: knative.Trigger.Kind}}
			got := NewTrigger(kind, sub, Delivery{Source: "commerce", EventType: "order.created", Version: "v1", Endpoint: tc.endpoint})
			uri, err := apis.ParseURL(tc.endpoint)
			if err != nil {
				t.Fatal(err)
			}
			want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&eventingv1.Trigger{
				TypeMeta: metav1.TypeMeta{APIVersion: "eventing.knative.dev/" + tc.version, Kind: "Trigger"},
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "shop", Name: kyma.TriggerName(sub), Labels: tc.labels, Annotations: map[string]string{kyma.OriginAnnotation: "orders"},
				},
				Spec: eventingv1.TriggerSpec{
					Broker:     kyma.DefaultBroker,
					Filter:     &eventingv1.TriggerFilter{Attributes: eventingv1.TriggerFilterAttributes{"source": "commerce", "type": "order.created", "eventtypeversion": "v1"}},
					Subscriber: duckv1.Destination{URI: uri},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			delete(want, "status")
			if tc.rewritten != "" {
				if written := k8sobject.Text(k8sobject.MapAt(want, "spec", "subscriber")["uri"]); written != tc.rewritten {
					t.Errorf("%s: the type writes %q, want %q", tc.reason, written, tc.rewritten)
				}
				k8sobject.MapAt(want, "spec", "subscriber")["uri"] = tc.endpoint
			}
			if diff := cmp.Diff(want, got.Object); diff != "" {
				t.Errorf("%s (-the API type +ours):\n%s", tc.reason, diff)
			}
		})
	}
}
