package trigger

import (
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestConversionsAreAccepted: the API server takes every Trigger of the golden
// corpus, at both versions, and finds no field that its schema does not know.
func TestConversionsAreAccepted(t *testing.T) {
	raw, err := os.ReadFile("../../../internal/migration/jobs/trigger/testdata/conversions.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var conversions []struct {
		Name    string
		Creates map[string]any
	}
	if err := yaml.Unmarshal(raw, &conversions); err != nil {
		t.Fatal(err)
	}
	onEach(t, func(t *testing.T, p *plane) {
		accepted := 0
		for _, c := range conversions {
			if c.Creates == nil {
				continue
			}
			trigger := (&unstructured.Unstructured{Object: c.Creates}).DeepCopy()
			trigger.SetAPIVersion(p.triggers().GroupVersion().String())
			if trigger.GetNamespace() == "" {
				trigger.SetNamespace("shop")
			}
			_, err := p.client.Resource(p.triggers()).Namespace(trigger.GetNamespace()).Create(t.Context(), trigger,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Errorf("%s: %v", c.Name, err)
				continue
			}
			accepted++
		}
		if accepted < 20 {
			t.Errorf("%d Triggers were tried, want most of the corpus", accepted)
		}
	})
}
