package command

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

// TestWriteForms: yaml has what json has, and name the changed objects, each once.
func TestWriteForms(t *testing.T) {
	r := partlyRestored()
	write := func(form string) string {
		var out bytes.Buffer
		p := &process{program: tools, IO: IO{Stdout: &out}, isTerminal: func(io.Writer) bool { return false }}
		if err := p.write(r, &commandLine{program: tools, options: options{output: form}}); err != nil {
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
