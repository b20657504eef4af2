package mesh

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

func subscription(source string, types ...string) *eventingv1alpha2.Subscription {
	return &eventingv1alpha2.Subscription{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "uid"},
		Spec:       eventingv1alpha2.SubscriptionSpec{Source: source, Types: types},
	}
}

func TestExpressionOf(t *testing.T) {
	t.Parallel()
	const all = "(EXISTS knativekymaprobe AND knativekymaprobe = 'all') OR "
	for _, tc := range []struct{ reason, eventType, source, want string }{
		{"a type and a source", "a.b", "commerce", all + "(type = 'a.b' AND source = 'commerce')"},
		{"any source", "a.b", "", all + "(type = 'a.b')"},
		{"a quote that ends no text of the expression", `a."b`, "", all + `(type = 'a."b')`},
		{"a quote that ends the text", "a.b'", "", ""},
		{"a backslash, which no text can have", "a.b", `c\d`, ""},
		{"a letter that is not ASCII", "a.b", "ü", ""},
	} {
		got, ok := expressionOf(tc.eventType, tc.source)
		if diff := cmp.Diff(tc.want, got); diff != "" || ok != (tc.want != "") {
			t.Errorf("%s: %v (-want +got):\n%s", tc.reason, ok, diff)
		}
	}
}

func TestDiffers(t *testing.T) {
	t.Parallel()
	in := &Triggers{namespace: "control", names: backend.Names(backend.DefaultPrefix)}
	want := func(source string) *unstructured.Unstructured {
		for _, u := range in.wanted(subscription(source, "a.b"), Broker{Name: "eventing", UID: "broker", Epoch: "1"}) {
			return u
		}
		return nil
	}
	for _, tc := range []struct {
		reason string
		source string
		edit   func(spec map[string]any)
		want   bool
	}{
		{"as it was created", "commerce", func(map[string]any) {}, false},
		{"with a type that is probed alone", `c\d`, func(map[string]any) {}, false},
		{"with a type that is probed alone, of an earlier version", `c\d`, func(spec map[string]any) { spec["subscriber"].(map[string]any)["uri"] = "/deliver/shop/orders" }, false},
		{"another sink", "commerce", func(spec map[string]any) { spec["subscriber"].(map[string]any)["uri"] = "/deliver/shop/other" }, true},
		{"of an earlier version, without the ID", "commerce", func(spec map[string]any) {
			uri := spec["subscriber"].(map[string]any)["uri"].(string)
			spec["subscriber"].(map[string]any)["uri"], _, _ = strings.Cut(uri, ".")
		}, false},
		{"of an earlier version", "commerce", func(spec map[string]any) {
			delete(spec, "filters")
			spec["subscriber"].(map[string]any)["uri"] = "/deliver/shop/orders"
		}, false},
		{"without the filter, and with the later subscriber", "commerce", func(spec map[string]any) { delete(spec, "filters") }, true},
		{"another filter", "commerce", func(spec map[string]any) { spec["filters"] = []any{map[string]any{"cesql": "TRUE"}} }, true},
		{"another filter beside it", "commerce", func(spec map[string]any) { delete(spec, "filter") }, true},
		{"a filter that none was wanted of", `c\d`, func(spec map[string]any) { spec["filters"] = []any{map[string]any{"cesql": "TRUE"}} }, true},
		{"another Broker", "commerce", func(spec map[string]any) { spec["broker"] = "default" }, true},
	} {
		is, err := another(want(tc.source))
		if err != nil {
			t.Fatal(err)
		}
		tc.edit(is.Object["spec"].(map[string]any))
		if got := differs(is, want(tc.source)); got != tc.want {
			t.Errorf("%s: differs: %v, want %v", tc.reason, got, tc.want)
		}
		if got := subscriptionOf(is); tc.reason != "another sink" && got.String() != "shop/orders" {
			t.Errorf("%s: the Trigger is of %s", tc.reason, got)
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	one := func(eventType string) probe { return probe{oneTrigger, eventType, ""} }
	wide := func(eventType string) awaited { return awaited{alone: one(eventType), wide: true} }
	narrow := func(eventType string) awaited { return awaited{alone: one(eventType)} }
	for _, tc := range []struct {
		reason          string
		all             []awaited
		turn, fruitless int
		want            []probe
	}{
		{"one probe for all", []awaited{wide("a"), wide("b"), wide("c")}, 0, 0, []probe{probeOfAll}},
		{"others are probed alone", []awaited{wide("a"), narrow("b"), narrow("c"), narrow("d")}, 0, 0, []probe{probeOfAll, one("b"), one("c")}},
		{"they take turns", []awaited{narrow("b"), narrow("c"), narrow("d")}, 2, 0, []probe{one("d"), one("b")}},
		{"a Knative that does not know the filter", []awaited{wide("a"), wide("b"), wide("c")}, 1, aloneAfter - 1, []probe{probeOfAll, one("b"), one("c")}},
		{"and now and then only", []awaited{wide("a")}, 1, aloneAfter, []probe{probeOfAll}},
	} {
		if diff := cmp.Diff(tc.want, next(tc.all, tc.turn, tc.fruitless), cmp.AllowUnexported(probe{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
