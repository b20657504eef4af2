//go:build !race

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

func TestMain(m *testing.M) { kubernetes.Main(m) }

// TestDemo is "make demo", which fails if anything that it says is not so. Its jobs are links to
// one program, since eight would be linked for this test alone. The race detector would double its
// time, and other tests run the same jobs with it.
func TestDemo(t *testing.T) {
	t.Setenv(kubernetes.KubeconfigEnv, "")
	bin := t.TempDir()
	for _, e := range registry.Jobs(registry.All()) {
		if err := os.Symlink(process.Build(t, "./cmd/eventmesh-migrate"), filepath.Join(bin, e.Job.Name())); err != nil {
			t.Fatal(err)
		}
	}
	var told bytes.Buffer
	if err := run(t.Context(), bin, &told); err != nil {
		t.Fatalf("%v\n%s", err, told.String())
	}
	if !strings.Contains(told.String(), "The control plane is stopped") {
		t.Errorf("the demo leaves its control plane behind:\n%s", told.String())
	}
}
