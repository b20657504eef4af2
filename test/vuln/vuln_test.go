//go:build slow

// Package vuln proves "make vuln": a finding fails it, and a database that cannot be read does not.
package vuln

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// finding is a made-up vulnerability of a package of a module, in the form of the Go vulnerability
// database.
func finding(module, pkg string) string {
	return `{
  "schema_version": "1.3.1", "id": "GO-2026-9999", "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z",
  "details": "Made up for a test.", "database_specific": {"url": "https://pkg.go.dev/vuln/GO-2026-9999"},
  "affected": [{
    "package": {"name": "` + module + `", "ecosystem": "Go"},
    "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
    "ecosystem_specific": {"imports": [{"path": "` + pkg + `"}]}
  }]
}`
}

// TestVuln runs the target on databases of its own. Fails on the commit before: there was no such
// target.
func TestVuln(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		database     func(t *testing.T) string
		failed       bool
		want         string
	}{
		{"Called", "a finding in what is called fails", func(t *testing.T) string { return write(t, finding("go.uber.org/zap", "go.uber.org/zap")) }, true, "Your code is affected by 1 vulnerability"},
		{"CalledByTheExample", "so does one that only the example calls", func(t *testing.T) string { return write(t, finding("golang.org/x/sync", "golang.org/x/sync/errgroup")) }, true, "examples/installer: "},
		{"NotLinked", "a finding in a package that is not linked is listed, no more", func(t *testing.T) string { return write(t, finding("go.uber.org/zap", "go.uber.org/zap/zapgrpc")) }, false, "No vulnerabilities found"},
		{"NoDatabase", "a database that is not there is said", func(t *testing.T) string { return filepath.Join(t.TempDir(), "missing") }, false, "NOT CHECKED"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, failed := vuln(t, "VULNDB=file://"+tc.database(t))
			if failed != tc.failed || !strings.Contains(out, tc.want) {
				t.Errorf("%s: failed: %t, want %t, with %q:\n%s", tc.reason, failed, tc.failed, tc.want, out)
			}
		})
	}
	// Nobody listens there.
	if out, failed := vuln(t, "VULNDB=https://127.0.0.1:1"); failed || !strings.Contains(out, "NOT CHECKED") {
		t.Errorf("a database that cannot be reached: failed: %t, want false, with the words NOT CHECKED:\n%s", failed, out)
	}
}

func write(t *testing.T, finding string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "GO-2026-9999.json"), []byte(finding), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func vuln(t *testing.T, vars ...string) (out string, failed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-C", "../..", "vuln", "PROGRAMS=./cmd/event-service"}, vars...)...)
	raw, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(raw), err != nil
}
