package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestProgramOfOneRun: in one run of make a program is built once, and in another one, or without
// one, from the sources of now.
func TestProgramOfOneRun(t *testing.T) {
	t.Setenv("EVENTMESH_CACHE", t.TempDir())
	checkout := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(checkout, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/tiny\n")
	for _, tc := range []struct{ reason, run, source, want string }{
		{"the first of a run", "1", "a", "a"},
		{"the next process of it", "1", "b", "a"},
		{"another run", "2", "b", "b"},
		{"no run", "", "c", "c"},
		{"one after it", "", "d", "d"},
		{"a build that fails", "3", "}", ""},
		{"one after it, which finds the former program", "3", "e", "e"},
	} {
		t.Setenv(runVariable, tc.run)
		write("main.go", `package main; import "fmt"; func main() { fmt.Print("`+tc.source+`") }`)
		if tc.want == "" {
			write("main.go", tc.source)
		}
		programs.built = nil // as in another process
		path, err := Program{Dir: checkout, Package: "."}.Build(t.Context())
		got := []byte{}
		if err == nil {
			if got, err = exec.CommandContext(t.Context(), path).Output(); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
		}
		if (err != nil) != (tc.want == "") || string(got) != tc.want {
			t.Errorf("%s: it says %q, %v, want %q", tc.reason, got, err, tc.want)
		}
	}
}

// TestWhatAResultDependsOn: the directories of the packages of a program, what is embedded in it,
// and the versions of libraries. Those of other programs do not matter.
func TestWhatAResultDependsOn(t *testing.T) {
	t.Setenv("EVENTMESH_CACHE", t.TempDir())
	checkout := t.TempDir()
	if err := os.CopyFS(checkout, fstest.MapFS{
		"go.mod": {Data: []byte("module example.com/tiny\n")}, "text/a b.txt": {}, "sub/sub.go": {Data: []byte("package sub\n")}, "other/other.go": {Data: []byte("package other\n")},
		"main.go": {Data: []byte("package main\n\nimport (\n\t\"embed\"\n\t_ \"example.com/tiny/sub\"\n)\n\n//go:embed text\nvar text embed.FS\n\nfunc main() { _ = text }\n")},
	}); err != nil {
		t.Fatal(err)
	}
	path, err := Program{Dir: checkout, Package: "."}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(path), ".inputs"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{checkout, checkout + "/go.mod", checkout + "/sub", checkout + "/text/a b.txt"}
	if diff := cmp.Diff(want, slices.Sorted(strings.SplitSeq(string(raw), "\n"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := DependOn(filepath.Join(checkout, "gone")); err == nil {
		t.Error("what is not there can be opened")
	}
}

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
