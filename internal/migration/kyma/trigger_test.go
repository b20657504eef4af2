package kyma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestAddress(t *testing.T) {
	for _, tc := range []struct {
		reason, a, b string
		same         bool
	}{
		{"the default port and path", "http://fn.shop:80/", "http://fn.shop", true},
		{"the full name of a Service", "http://fn.shop", "http://fn.shop.svc.cluster.local", true},
		{"the shorter name of a Service", "http://fn.shop.svc", "http://fn.shop.svc.cluster.local/", true},
		{"the name with its root", "http://fn.shop.svc.cluster.local.", "http://fn.shop", true},
		{"capitals in scheme and host", "HTTP://Fn.Shop/", "http://fn.shop", true},
		{"capitals in the path", "http://fn.shop/A", "http://fn.shop/a", false},
		{"a fragment is never sent", "http://fn.shop/a#b", "http://fn.shop/a", true},
		{"a query is", "http://fn.shop/?a", "http://fn.shop/", false},
		{"a slash at the end of a path", "http://fn.shop/a/", "http://fn.shop/a", false},
		{"another port", "http://fn.shop:8080", "http://fn.shop", false},
		{"https has its own default", "https://fn.shop:443", "https://fn.shop", true},
		{"http and https", "http://fn.shop", "https://fn.shop", false},
		{"what is no namespace is no Service", "http://example.com", "http://example.com.svc.cluster.local", false},
		{"an address of IPv6", "http://[FD00::1]:80/", "http://[fd00::1]", true},
		{"an escaped slash is no slash", "http://fn.shop/a%2Fb", "http://fn.shop/a/b", false},
		{"credentials", "http://u:p@fn.shop", "http://fn.shop", false},
	} {
		is := func(name string) bool { return name == "shop" }
		a, b := Address(tc.a, is), Address(tc.b, is)
		if (a == b) != tc.same {
			t.Errorf("%s: %s is %s, %s is %s; same should be %v", tc.reason, tc.a, a, tc.b, b, tc.same)
		}
	}
}

func TestTriggersOfAnyVersion(t *testing.T) {
	for _, tc := range []struct {
		reason, trigger, subscriber string
		attributes                  map[string]string
		opaque                      bool
	}{
		{
			"as trigger-sync writes it", `{spec: {filter: {attributes: {source: a, type: t}}, subscriber: {uri: "http://fn.shop/"}}}`,
			"http://fn.shop/", map[string]string{"source": "a", "type": "t"}, false,
		},
		{"as Kyma's Console writes it", `{metadata: {namespace: shop}, spec: {filter: {attributes: {}}, subscriber: {ref: {apiVersion: v1, kind: Service, name: fn}}}}`, "http://fn.shop.svc.cluster.local", map[string]string{}, false},
		{"a path at a Service", `{spec: {subscriber: {ref: {apiVersion: serving.knative.dev/v1, kind: Service, name: fn, namespace: crm}, uri: /in}}}`, "http://fn.crm.svc.cluster.local/in", map[string]string{}, false},
		{"as Knative 0.10 had it", `{metadata: {namespace: shop}, spec: {filter: {sourceAndType: {source: a}}, subscriber: {apiVersion: v1, kind: Service, name: fn}}}`, "http://fn.shop.svc.cluster.local", map[string]string{"source": "a"}, false},
		{"what only its controller can resolve", `{spec: {subscriber: {ref: {apiVersion: x/v1, kind: Thing, name: fn}}}, status: {subscriberURI: "http://thing", conditions: [{type: Ready, status: "True"}]}}`, "http://thing", map[string]string{}, false},
		{"and has not", `{spec: {subscriber: {ref: {apiVersion: x/v1, kind: Thing, name: fn}}}, status: {subscriberURI: "http://thing"}}`, "", map[string]string{}, false},
		{"filters of later releases", `{spec: {filters: [{exact: {type: t}}], subscriber: {uri: "http://fn"}}}`, "http://fn", nil, true},
	} {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(tc.trigger), &u.Object); err != nil {
			t.Fatal(err)
		}
		attributes, opaque := FilterOf(u)
		if diff := cmp.Diff(tc.attributes, attributes); diff != "" || opaque != tc.opaque {
			t.Errorf("%s: opaque %t (-want +got):\n%s", tc.reason, opaque, diff)
		}
		if got := SubscriberOf(u); got != tc.subscriber {
			t.Errorf("%s: sends to %q, want %q", tc.reason, got, tc.subscriber)
		}
	}
}
