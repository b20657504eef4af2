package main

import (
	"os"
	"path/filepath"
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

func TestShownFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "job.go"), []byte("package main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := func(name, content string) string {
		return "Text.\n\n<!-- file: " + name + ", copied by \"make charts\" from examples/registry -->\n```go\n" + content + "```\n\n```bash\ngo vet\n```\n"
	}
	got, err := withFiles([]byte(shown("job.go", "former\n")), dir)
	if want := shown("job.go", "package main\n"); err != nil || string(got) != want {
		t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
	}
	for _, document := range []string{"Text.\n", shown("none.go", "")} {
		if _, err := withFiles([]byte(document), dir); err == nil {
			t.Errorf("nobody would notice that no file is shown: %s", document)
		}
	}
}
