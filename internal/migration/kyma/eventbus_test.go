package kyma

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestTriggerName(t *testing.T) {
	long := "lambda-" + strings.Repeat("order.created.", 17) + "v1"
	cases := map[string]struct {
		reason          string
		namespace, name string
		function        string
		want            string
	}{
		"Console": {
			reason:    "The Console deletes a Trigger by this name: its check value.",
			namespace: "shop", name: "lambda-test-order.created-v1", function: "test",
			want: "ac9f5fba-f0e6-5d05-9826-2d89f95f2fd6",
		},
		"ConsoleInCapitals": {
			reason:    "The Console writes the name in lower case before it makes the name of it.",
			namespace: "shop", name: "Lambda-Test-Order.Created-v1", function: "test",
			want: "ac9f5fba-f0e6-5d05-9826-2d89f95f2fd6",
		},
		"NoFunction": {
			reason:    "Without the label it is nobody's Function, and the Console does not show it.",
			namespace: "shop", name: "lambda-test-order.created-v1",
			want: "lambda-test-order-created-v1-580f62db356f",
		},
		"Plain":          {reason: "Dots are gone.", namespace: "shop", name: "order.created", want: "order-created-832df6938c48"},
		"OtherNamespace": {reason: "The namespace is part of the identity.", namespace: "crm", name: "order.created", want: "order-created-0797d2d60c9a"},
		"Long":           {reason: "A label's value has 63 characters.", namespace: "shop", name: long, want: "lambda-order-created-order-created-order-created-o-88400f369e27"},
		"NothingLeft":    {reason: "A name that has no letter left gets a word.", namespace: "shop", name: "...", want: "subscription-ce43cba4ed92"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sub := &unstructured.Unstructured{Object: map[string]any{}}
			sub.SetNamespace(tc.namespace)
			sub.SetName(tc.name)
			if tc.function != "" {
				sub.SetLabels(map[string]string{FunctionLabel: tc.function})
			}
			got := TriggerName(sub)
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
			if why := validation.IsDNS1123Label(got); len(why) > 0 {
				t.Errorf("%q is no DNS label: %v", got, why)
			}
		})
	}
}

func TestLegacySubscriptionName(t *testing.T) {
	if got, want := LegacySubscriptionName("my-shop.eu", "lambda-x"), "lambda-x--my-dshop-peu"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
