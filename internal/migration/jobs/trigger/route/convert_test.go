package route

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
