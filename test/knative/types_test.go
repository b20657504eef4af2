// Package knative compares what the migration writes for Knative with the types of Knative.
package knative

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	dns "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// testdata is that of the job, whose own tests compare it with what the job makes.
const testdata = "../../internal/migration/jobs/trigger/testdata/"

func read(t testing.TB, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(testdata + file)
	if err != nil {
		t.Fatal(err)
	}
	object, err := yaml.YAMLToJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(object, into); err != nil {
		t.Fatal(err)
	}
}

// kindOf is Knative's kind Trigger, in a version.
func kindOf(version string) migration.Kind {
	gvr := knative.Trigger.WithVersion(version).GroupVersion().WithResource("triggers")
	return migration.Kind{GroupKind: knative.Trigger, Served: true, Resource: migration.Resource{GroupVersionResource: gvr, Kind: knative.Trigger.Kind}}
}

// problems are what the API server or Knative's webhook would refuse.
func problems(trigger *unstructured.Unstructured) []string {
	var typed eventingv1.Trigger
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(trigger.Object, &typed, true); err != nil {
		return []string{err.Error()}
	}
	var all []string
	if err := typed.Validate(context.Background()); err != nil {
		all = append(all, err.Error())
	}
	all = append(all, dns.IsDNS1123Label(typed.Name)...)
	for _, err := range slices.Concat(
		metav1validation.ValidateLabels(typed.Labels, field.NewPath("labels")),
		validation.ValidateAnnotations(typed.Annotations, field.NewPath("annotations")),
	) {
		all = append(all, err.Error())
	}
	return all
}

// TestConversionsAreTaken: each Trigger of the job's corpus is one that Knative takes.
// TestConversions of the job compares them with what it makes.
func TestConversionsAreTaken(t *testing.T) {
	var all []struct {
		Name    string         `json:"name"`
		Creates map[string]any `json:"creates"`
	}
	read(t, "conversions.golden.yaml", &all)
	created := 0
	for _, c := range all {
		if c.Creates == nil {
			continue
		}
		created++
		for _, problem := range problems(&unstructured.Unstructured{Object: c.Creates}) {
			t.Errorf("%s: the Trigger would be refused: %s", c.Name, problem)
		}
	}
	if len(all) < 40 || created < 20 {
		t.Errorf("the corpus has %d cases and %d Triggers", len(all), created)
	}
}

// FuzzTrigger: whatever is stored as a Subscription, the Trigger that it becomes is one that
// Knative takes. FuzzConversion of the job has the rest.
func FuzzTrigger(f *testing.F) {
	var corpus []struct {
		Subscription map[string]any `json:"subscription"`
	}
	read(f, "conversions.yaml", &corpus)
	for _, c := range corpus {
		raw, err := json.Marshal(c.Subscription)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var sub map[string]any
		if json.Unmarshal(raw, &sub) != nil || sub == nil {
			t.Skip("no object")
		}
		obj := &unstructured.Unstructured{Object: sub}
		// The metadata was checked when the object was stored.
		obj.SetNamespace("shop")
		if len(dns.IsDNS1123Subdomain(obj.GetName())) > 0 || len(metav1validation.ValidateLabels(obj.GetLabels(), nil)) > 0 {
			t.Skip("the API server stores no such object")
		}
		delivery, why := route.DeliveryOf(obj)
		if why != nil {
			return // it is reported
		}
		for _, problem := range problems(route.NewTrigger(kindOf("v1"), obj, delivery)) {
			t.Errorf("%s\nbecomes a Trigger that is refused: %s", raw, problem)
		}
	})
}

// TestBrokerAsTheAPITypeHasIt compares the Brokers that TestBroker of the job compares with ours
// with those of the type of knative.dev/eventing, but for its empty status.
func TestBrokerAsTheAPITypeHasIt(t *testing.T) {
	var ours []map[string]any
	read(t, "brokers.yaml", &ours)
	var all []map[string]any
	for _, version := range []string{"v1", "v1beta1"} {
		want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&eventingv1.Broker{
			TypeMeta:   metav1.TypeMeta{APIVersion: "eventing.knative.dev/" + version, Kind: "Broker"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"},
		})
		if err != nil {
			t.Fatal(err)
		}
		delete(want, "status")
		all = append(all, want)
	}
	if diff := cmp.Diff(all, ours); diff != "" {
		t.Errorf("Brokers (-the API type +ours):\n%s", diff)
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
			got := route.NewTrigger(kindOf(tc.version), sub, route.Delivery{Source: "commerce", EventType: "order.created", Version: "v1", Endpoint: tc.endpoint})
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
