// Package upgrade has other versions than the one that is checked out, for tests: the programs of
// the version before, and a clone that can be released as the next one. "previous" names the commit
// of the version before: write another one into it when a version is released.
package upgrade

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

//go:embed previous
var previous string

// Sources returns a folder with the files of the commit that previous names.
func Sources(t testing.TB) (dir string) {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(previous)
	// A clone without history cannot be upgraded from.
	if err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		text := fmt.Sprintf("commit %s of test/upgrade/previous is not in this clone. Next: git fetch --unshallow", commit)
		if os.Getenv("CI") != "" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	dir = t.TempDir()
	run(t, dir, run(t, root, nil, "git", "archive", commit), "tar", "-x")
	return dir
}

// Previous builds programs of the commit that previous names, and returns their folder. The names
// are those below cmd/.
func Previous(t testing.TB, programs ...string) (dir string) {
	t.Helper()
	from := Sources(t)
	dir = t.TempDir()
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-X github.com/kyma-project/eventmesh-migration/internal/version.linked=" + strings.TrimSpace(previous)[:10], "-o", dir + string(filepath.Separator)}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	run(t, from, nil, "go", args...)
	return dir
}

// Tagged clones what is checked out into a folder, makes its changelog and its module those of a
// version, and tags that: make release takes it.
func Tagged(t testing.TB, dir, version string) {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	run(t, "", nil, "git", "clone", "-q", root, dir)
	changelog, err := os.ReadFile(filepath.Join(dir, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"CHANGELOG.md": string(changelog) + "\n## [" + version + "] - 2026-11-23\n\n- For tests.\n", "module/VERSION": version + "\n", "module/channels.yaml": "fast: " + version + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	settings := []string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgSign=false", "-c", "tag.gpgSign=false"}
	run(t, dir, nil, "git", append(settings, "commit", "-qam", "CHANGELOG: for tests")...)
	run(t, dir, nil, "git", append(settings, "tag", "-a", "v"+version, "-m", "v"+version)...)
}

// run runs a program in a folder, and returns what it wrote.
func run(t testing.TB, in string, input []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Stdin = in, bytes.NewReader(input)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return out
}
