package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/test/helm"
)

// examples returns the objects that a guide shows.
func examples(t *testing.T, guide string) []*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "migration", guide))
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, block := range strings.Split(string(raw), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		// In a list, a block is indented as a whole, which YAML takes as it is.
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(block), &u.Object); err != nil {
			t.Fatalf("%s: %v\n%s", guide, err, block)
		}
		objects = append(objects, u)
	}
	return objects
}

// TestArgoCDsValuesRenderEachObjectOnce: of two objects with one name Argo CD keeps the last, which
// is the one that is deleted again. Fails on the commit before: no guide says what to set.
func TestArgoCDsValuesRenderEachObjectOnce(t *testing.T) {
	var values []byte
	for _, u := range examples(t, "migration-guide-1.11.md") {
		got, found, err := unstructured.NestedMap(u.Object, "spec", "source", "helm", "valuesObject")
		if err != nil {
			t.Fatal(err)
		}
		if found && u.GetKind() == "Application" {
			if values, err = yaml.Marshal(got); err != nil {
				t.Fatal(err)
			}
		}
	}
	if values == nil {
		t.Fatal("the guide shows no Application with values")
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, values, 0o644); err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, component := range []string{"core", "application-connector"} {
			out, err := h.Template(t.Context(), component, overlaid(t, component, "1.11"), "--namespace", systemNS, "--values", file)
			if err != nil {
				t.Fatalf("%s is not rendered with the values of the guide: %v", component, err)
			}
			r := read(t, out)
			if len(of[*batchv1.Job](r)) == 0 {
				t.Fatalf("%s renders no Job", component)
			}
			seen := map[string]bool{}
			for _, obj := range r.objects {
				m, err := meta.Accessor(obj)
				if err != nil {
					t.Fatal(err)
				}
				key := fmt.Sprintf("%T %s/%s", obj, m.GetNamespace(), m.GetName())
				if seen[key] {
					t.Errorf("%s: %s is there twice", component, key)
				}
				seen[key] = true
			}
		}
	})
}

// TestFluxWaitsForTheLongestHook, and neither leaves the hooks out nor rolls back, in the guide.
// Fails on the commit before: no guide says what to set.
func TestFluxWaitsForTheLongestHook(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", hooksChart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Hooks struct{ TimeoutSeconds int }
	}
	if err := yaml.Unmarshal(raw, &values); err != nil || values.Hooks.TimeoutSeconds == 0 {
		t.Fatalf("the chart waits %d seconds, %v", values.Hooks.TimeoutSeconds, err)
	}
	releases := 0
	for _, u := range examples(t, "migration-guide-1.11.md") {
		if u.GetKind() != "HelmRelease" {
			continue
		}
		releases++
		text, _, _ := unstructured.NestedString(u.Object, "spec", "timeout")
		if timeout, err := time.ParseDuration(text); err != nil || timeout < time.Duration(values.Hooks.TimeoutSeconds)*time.Second {
			t.Errorf("HelmRelease %s waits %q, %v; a hook may take %d seconds", u.GetName(), text, err, values.Hooks.TimeoutSeconds)
		}
		upgrade, _, _ := unstructured.NestedMap(u.Object, "spec", "upgrade")
		remediation, _, _ := unstructured.NestedMap(upgrade, "remediation")
		if upgrade["disableHooks"] != false || remediation["retries"] != int64(0) && remediation["retries"] != float64(0) || remediation["remediateLastFailure"] != false {
			t.Errorf("HelmRelease %s upgrades with %v", u.GetName(), upgrade)
		}
	}
	if releases == 0 {
		t.Error("the guide shows no HelmRelease")
	}
}
