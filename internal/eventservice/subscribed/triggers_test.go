package subscribed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestSubscribedBy(t *testing.T) {
	type result struct {
		Source string
		Event  Event
		OK     bool
	}
	for _, tc := range []struct {
		reason, spec string
		want         result
	}{
		{"a Trigger as trigger-sync makes it", "{filter: {attributes: {source: shop, type: order.created, eventtypeversion: v1}}}", result{"shop", Event{"order.created", "v1"}, true}},
		{"more attributes do not matter", "{filter: {attributes: {source: shop, type: a, eventtypeversion: v1, subject: x}}}", result{"shop", Event{"a", "v1"}, true}},
		{"every version of a type", "{filter: {attributes: {source: shop, type: a}}}", result{"shop", Event{"a", ""}, true}},
		{"another source's is that one's", "{filter: {attributes: {source: other, type: a}}}", result{"other", Event{"a", ""}, true}},
		{"without a source it is no Application's", "{filter: {attributes: {type: a}}}", result{"", Event{"a", ""}, false}},
		{"no attributes", "{filter: {}}", result{}},
		{"no filter", "{}", result{}},
		{"a shape from elsewhere", "{filter: {attributes: [a]}}", result{}},
	} {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte("{spec: "+tc.spec+"}"), &obj.Object); err != nil {
			t.Fatal(err)
		}
		source, e, ok := subscribedBy(obj)
		if diff := cmp.Diff(tc.want, result{source, e, ok}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
