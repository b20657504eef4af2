package root

import (
	"os"
	"path/filepath"
	"testing"
)

// TestEnter: paths are those from the root of the repository, for a process that was started in the
// directory of this module. Everybody else stays where they are.
func TestEnter(t *testing.T) {
	repository, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "go.mod"), []byte("module example.org/other\n\nrequire github.com/kyma-project/eventmesh-migration/build/release v0.0.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for _, tc := range []struct{ reason, from, want string }{
		{"started by go -C build/release run", filepath.Join(repository, "build", "release"), repository},
		{"in the root", repository, repository},
		{"in a module of others", other, other},
		{"where no module is", empty, empty},
	} {
		t.Chdir(tc.from)
		if err := Enter(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Getwd(); err != nil || got != tc.want {
			t.Errorf("%s: it is in %s, want %s (%v)", tc.reason, got, tc.want, err)
		}
	}
}
