package frame

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/homedir"
)

// TestHomeFiles: the files are those of client-go's rules, in their order.
func TestHomeFiles(t *testing.T) {
	all := map[string]string{"HOME": "/h", "HOMEDRIVE": "C:", "HOMEPATH": "/d", "USERPROFILE": "/u"}
	for name, tc := range map[string]struct {
		reason, system string
		without        []string
		want           []string
	}{
		"Linux":       {"HOME is all there is to ask", "linux", nil, []string{"/h"}},
		"LinuxNoHome": {"rather than nothing", "linux", []string{"HOME"}, []string{"C:/d", "/u"}},
		"Windows":     {"a HOME, which Git sets, comes first", "windows", nil, []string{"/h", "C:/d", "/u"}},
		"PowerShell":  {"and mostly there is none", "windows", []string{"HOME", "HOMEDRIVE"}, []string{"/u"}},
		"Nothing":     {"nothing is set", "windows", []string{"HOME", "HOMEPATH", "USERPROFILE"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := homeFiles(tc.system, func(key string) string {
				if slices.Contains(tc.without, key) {
					return ""
				}
				return all[key]
			})
			var want []string
			for _, home := range tc.want {
				want = append(want, home+"/.kube/config")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	if got := homeFiles(runtime.GOOS, os.Getenv); got[0] != filepath.Join(homedir.HomeDir(), ".kube", "config") {
		t.Errorf("client-go looks in %s: %s", homedir.HomeDir(), got[0])
	}
}
