package command

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestConnect(t *testing.T) {
	inPod := func(tr *trial) {
		tr.env["KUBERNETES_SERVICE_HOST"] = "10.96.0.1"
		tr.inCluster = func() (*rest.Config, error) { return &rest.Config{Host: "https://10.96.0.1:443"}, nil }
	}
	noToken := func(tr *trial) {
		tr.env["KUBERNETES_SERVICE_HOST"] = "10.96.0.1"
		tr.inCluster = func() (*rest.Config, error) {
			return nil, &os.PathError{Op: "open", Path: "/var/run/secrets/token", Err: os.ErrNotExist}
		}
	}
	for name, tc := range map[string]struct {
		reason string
		args   []string
		change func(*trial)
		host   string
		errs   []string
	}{
		"Kubeconfig": {
			reason: "outside of a Pod, KUBECONFIG and its current context",
			host:   "https://near.example:6443",
		},
		"Context": {
			reason: "a context is chosen",
			args:   []string{"--context=far"},
			host:   "https://far.example:6443",
		},
		"HomeDirectory": {
			reason: "without KUBECONFIG, the file in the home",
			change: func(tr *trial) {
				home := filepath.Dir(tr.env["KUBECONFIG"])
				if err := os.Mkdir(filepath.Join(home, ".kube"), 0o700); err != nil {
					panic(err)
				}
				if err := os.Rename(tr.env["KUBECONFIG"], filepath.Join(home, ".kube", "config")); err != nil {
					panic(err)
				}
				tr.env = map[string]string{"HOME": home}
			},
			host: "https://near.example:6443",
		},
		"HomeOfWindows": {
			reason: "cmd and PowerShell have no HOME; on f3299ef: exit code 2",
			change: func(tr *trial) {
				home := filepath.Dir(tr.env["KUBECONFIG"])
				if err := os.Mkdir(filepath.Join(home, ".kube"), 0o700); err != nil {
					panic(err)
				}
				if err := os.Rename(tr.env["KUBECONFIG"], filepath.Join(home, ".kube", "config")); err != nil {
					panic(err)
				}
				tr.env = map[string]string{"USERPROFILE": home}
			},
			host: "https://near.example:6443",
		},
		"Pod": {
			reason: "in a Pod its ServiceAccount comes first",
			change: inPod,
			host:   "https://10.96.0.1:443",
		},
		"ContextInAPod": {
			reason: "what is asked for wins",
			args:   []string{"--context=far"},
			change: inPod,
			host:   "https://far.example:6443",
		},
		"PodWithoutToken": {
			reason: "then the kubeconfig, by the order of the contract",
			change: noToken,
			host:   "https://near.example:6443",
		},
		"PodWithNothing": {
			reason: "the Pod's own problem is the one to solve",
			change: func(tr *trial) { noToken(tr); delete(tr.env, "KUBECONFIG") },
			errs:   []string{"cannot use the Pod's ServiceAccount", "automountServiceAccountToken", "--kubeconfig"},
		},
		"ListOfFiles": {
			reason: "KUBECONFIG may name several files, some of which are not there",
			change: func(tr *trial) {
				tr.env["KUBECONFIG"] = "/nonexistent/a" + string(os.PathListSeparator) + tr.env["KUBECONFIG"]
			},
			host: "https://near.example:6443",
		},
		"UnknownContext": {
			reason: "the file and what there is are named",
			args:   []string{"--context=moon"},
			errs:   []string{`--context "moon": is not in kubeconfig `, "Valid: broken, far or near"},
		},
		"BrokenContext": {
			reason: "an error in the file names the file",
			args:   []string{"--context=broken"},
			errs:   []string{"config, context \"broken\": ", "gone", "Correct the file"},
		},
		"NoSuchFile": {
			reason: "a file that was asked for is never replaced by another",
			args:   []string{"--kubeconfig=/nonexistent/config"},
			change: inPod,
			errs:   []string{`--kubeconfig "/nonexistent/config": the file does not exist`},
		},
		"NothingAtAll": {
			reason: "all ways are named",
			change: func(tr *trial) { tr.env = nil },
			errs:   []string{"this is not a Pod, and neither KUBECONFIG nor HOME is set (nor USERPROFILE)"},
		},
		"EmptyHome": {
			reason: "the place that was looked at is named",
			change: func(tr *trial) { tr.env = map[string]string{"HOME": "/nonexistent"} },
			errs:   []string{"/nonexistent/.kube/config does not exist"},
		},
		"NotYAML": {
			reason: "the file is named",
			change: func(tr *trial) { mustWrite(tr.env["KUBECONFIG"], "}{") },
			errs:   []string{"cannot read kubeconfig ", "config"},
		},
		"NoContexts": {
			reason: "client-go would go on to localhost:8080",
			change: func(tr *trial) { mustWrite(tr.env["KUBECONFIG"], "apiVersion: v1\nkind: Config\n") },
			errs:   []string{"has no contexts"},
		},
		"NoCurrentContext": {
			reason: "a choice is proposed",
			change: func(tr *trial) {
				mustWrite(tr.env["KUBECONFIG"], strings.Replace(kubeconfig, "current-context: near\n", "", 1))
			},
			errs: []string{"has no current context. Choose one with --context: broken, far or near"},
		},
		"CurrentContextGone": {
			reason: "a choice is proposed",
			change: func(tr *trial) {
				mustWrite(tr.env["KUBECONFIG"], strings.Replace(kubeconfig, "current-context: near\n", "current-context: away\n", 1))
			},
			errs: []string{`its current context "away" does not exist`, "broken, far or near"},
		},
		"EngineRefusesIt": {
			reason: "a certificate that cannot be used shows only when the client is made",
			change: func(tr *trial) {
				tr.newEngine = func(*rest.Config, engine.Options) (runner, error) { return nil, errors.New("bad certificate") }
			},
			errs: []string{"https://near.example:6443", "context near", "bad certificate"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrial(t, tc.args...)
			if tc.change != nil {
				tc.change(tr)
			}
			code := tr.main()
			if tc.errs == nil {
				if code != 0 || tr.config == nil || tr.config.Host != tc.host {
					t.Fatalf("%s: exit code %d, config %v, want %s; stderr:\n%s", tc.reason, code, tr.config, tc.host, &tr.stderr)
				}
				return
			}
			if code != migration.ExitUsage {
				t.Errorf("%s: exit code %d, want %d", tc.reason, code, migration.ExitUsage)
			}
			for _, want := range tc.errs {
				if !strings.Contains(tr.stderr.String(), want) {
					t.Errorf("%s: no %q in:\n%s", tc.reason, want, &tr.stderr)
				}
			}
			if strings.Contains(tr.stderr.String(), "s3cret") {
				t.Errorf("%s: shows a token:\n%s", tc.reason, &tr.stderr)
			}
		})
	}
}

func mustWrite(path, content string) {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		panic(err)
	}
}

func TestClientLimits(t *testing.T) {
	type limits struct {
		QPS   float32
		Burst int
	}
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   limits
	}{
		"None":  {"the server's fairness is the only limit", nil, limits{-1, -1}},
		"QPS":   {"client-go would wait for ever with a negative burst", []string{"--qps=10"}, limits{10, 20}},
		"Small": {"nor is a burst of 0 of use", []string{"--qps=0.2"}, limits{0.2, 1}},
		"Both":  {"both as they are", []string{"--qps=10", "--burst=3"}, limits{10, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrial(t, tc.args...)
			if code := tr.main(); code != 0 {
				t.Fatalf("%s: exit code %d:\n%s", tc.reason, code, &tr.stderr)
			}
			if diff := cmp.Diff(tc.want, limits{tr.config.QPS, tr.config.Burst}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if ua := tr.config.UserAgent; !strings.HasPrefix(ua, "test-job/v1.2.3 (") || !strings.HasSuffix(ua, ") clothes") {
				t.Errorf("%s: the user agent is %q", tc.reason, ua)
			}
		})
	}
}
