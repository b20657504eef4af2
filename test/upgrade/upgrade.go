// Package upgrade builds the programs of the version before this one, for tests that begin with it. "previous" names its commit: write another one into
// it when a version is released.
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

// Previous builds programs of the commit that previous names, and returns their folder. The names are those below cmd/.
func Previous(t testing.TB, programs ...string) (dir string) {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(previous)
	run := func(in string, input []byte, name string, args ...string) []byte {
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
	// A clone without history cannot be upgraded from.
	if err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		text := fmt.Sprintf("commit %s of test/upgrade/previous is not in this clone. Next: git fetch --unshallow", commit)
		if os.Getenv("CI") != "" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	from := t.TempDir()
	run(from, run(root, nil, "git", "archive", commit), "tar", "-x")
	dir = t.TempDir()
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-X github.com/kyma-project/eventmesh-migration/internal/version.linked=" + commit[:10], "-o", dir + string(filepath.Separator)}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	run(from, nil, "go", args...)
	return dir
}
