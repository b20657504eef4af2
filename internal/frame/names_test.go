package frame

import "testing"

// TestKubectlName: what -o name prints are arguments of kubectl.
func TestKubectlName(t *testing.T) {
	for want, object := range map[string][4]string{
		"trigger.eventing.knative.dev/orders --namespace=shop": {"eventing.knative.dev", "Trigger", "shop", "orders"},
		"namespace/shop":                {"", "Namespace", "", "shop"},
		"pod/event-bus-0 --namespace=a": {"", "Pod", "a", "event-bus-0"},
	} {
		if got := KubectlName(object[0], object[1], object[2], object[3]); got != want {
			t.Errorf("%q: %q, want %q", object, got, want)
		}
	}
}
