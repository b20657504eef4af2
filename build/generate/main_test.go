package main

import (
	"strings"
	"testing"
)

func TestWhatIsGeneratedIsUpToDate(t *testing.T) {
	t.Chdir("../..")
	if err := run(true); err != nil {
		t.Error(err)
	}
}

// TestSchemaOfADependency: an umbrella chart hands its dependency the condition and the values that
// all share. On f3299ef Helm said that 'enabled' is not allowed.
func TestSchemaOfADependency(t *testing.T) {
	raw, err := schemaOf(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"enabled": {`, `"global": {`} {
		if !strings.Contains(string(raw), key) {
			t.Errorf("no %s in\n%s", key, raw)
		}
	}
}
