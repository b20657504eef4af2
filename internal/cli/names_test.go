package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

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

// TestWriteForms: yaml has what json has, and name the changed objects, each once.
func TestWriteForms(t *testing.T) {
	r := partlyRestored()
	write := func(form string) string {
		var out bytes.Buffer
		p := &process{IO: IO{Stdout: &out}, isTerminal: func(io.Writer) bool { return false }}
		if err := p.write(r, &commandLine{options: options{output: form}}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	asJSON, err := yaml.YAMLToJSONStrict([]byte(write(outputYAML)))
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := errors.Join(json.Unmarshal(asJSON, &got), json.Unmarshal([]byte(write(outputJSON)), &want)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("yaml (-json +yaml):\n%s", diff)
	}
	names := strings.Split(strings.TrimSpace(write(outputName)), "\n")
	if len(names) != len(slices.Compact(slices.Clone(names))) || !slices.Contains(names, "hat.clothes.example/large --namespace=wardrobe") {
		t.Errorf("name: %q", names)
	}
}
