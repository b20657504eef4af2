package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

func TestMain(m *testing.M) { kubernetes.Main(m) }

// TestProcesses runs all steps with processes: each checks what it shows.
func TestProcesses(t *testing.T) {
	told(t, true, "The switch to EventMesh needs a node")
}

// told runs all steps, and looks for what is to be on the screen.
func told(t *testing.T, processes bool, wants ...string) {
	t.Helper()
	t.Setenv(kubernetes.KubeconfigEnv, "")
	needsKubectl(t)
	var out bytes.Buffer
	o := options{dir: t.TempDir(), processes: processes, out: &out}
	err := tell(t.Context(), o)
	t.Logf("the screen:\n%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append([]string{
		"The sink orders got event", "The sink mail got event", "type order.created.v1, source commerce, data {\"order\": 7}", "type customer.created.v1, source commerce, data {\"customer\": 1}",
		"   $ kubectl -n kyma-system delete ", "No resources found",
	}, wants...) {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the screen lacks %q", want)
		}
	}
	if left, err := os.ReadDir(o.dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// needsKubectl skips a test on a machine that lacks what its commands need.
func needsKubectl(t *testing.T) {
	t.Helper()
	if err := needs(); err != nil {
		t.Skip(err)
	}
}

// TestNothingRuns: -stop is no failure when there is nothing to end. It removes what was left by a
// process that is gone, and leaves the files of others alone.
func TestNothingRuns(t *testing.T) {
	var out bytes.Buffer
	o := options{dir: t.TempDir(), out: &out}
	if err := end(t.Context(), o); err != nil || out.String() != "Nothing runs.\n" {
		t.Errorf("%q, %v", &out, err)
	}
	stays := t.TempDir()
	// The number of this process, which was started at another time.
	if err := os.WriteFile(o.state(), fmt.Appendf(nil, `{"pid": %d, "started": "1", "dir": %q}`, os.Getpid(), stays), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := end(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stays); err != nil {
		t.Errorf("a directory that is not that of a cluster was removed: %v", err)
	}
	if _, err := os.Stat(o.state()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", o.state(), err)
	}
}
