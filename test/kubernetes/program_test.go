package kubernetes

import (
	"os"
	"path/filepath"
	"testing"
)

func TestProgramsOfRemovedCheckouts(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("EVENTMESH_CACHE", cache)
	build := func(checkout string) string {
		t.Helper()
		for name, text := range map[string]string{
			"go.mod": "module example.com/tiny\n", "main.go": "package main\n\nfunc main() {}\n",
		} {
			if err := os.WriteFile(filepath.Join(checkout, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		path, err := Program{Dir: checkout, Package: "."}.Build(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	kept, removed := t.TempDir(), t.TempDir()
	keptProgram, removedProgram := build(kept), build(removed)
	unknown := filepath.Join(cache, "bin-0123456789ab")
	if err := os.MkdirAll(unknown, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(removed); err != nil {
		t.Fatal(err)
	}
	build(t.TempDir())
	for path, want := range map[string]bool{
		keptProgram: true, unknown: true, filepath.Dir(removedProgram): false,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", path, err == nil, want)
		}
	}
}
