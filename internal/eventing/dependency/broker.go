package dependency

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// BrokerURL is where a Broker takes events; "" and the problem, in Knative's words, if it takes
// none.
func BrokerURL(broker *unstructured.Unstructured) (url, problem string) {
	if broker == nil {
		return "", "The Broker does not exist yet."
	}
	problem = "The Broker is not ready yet. No controller of Knative Eventing has answered."
	observed, _, _ := unstructured.NestedInt64(broker.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(broker.Object, "status", "conditions")
	for _, c := range conditions {
		is, _ := c.(map[string]any)
		if is["type"] != "Ready" {
			continue
		}
		if is["status"] == "True" && observed >= broker.GetGeneration() && broker.GetDeletionTimestamp() == nil {
			url, _, _ = unstructured.NestedString(broker.Object, "status", "address", "url")
			return url, ""
		}
		problem = strings.TrimSpace(fmt.Sprintf("The Broker is not ready. %v %v", text(is["reason"]), text(is["message"])))
	}
	return "", problem
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
