package suite

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

func TestReadReport(t *testing.T) {
	cases := map[string]struct {
		reason string
		stdout string
		want   migration.Result // "": an error
	}{
		"Report":     {"One object is the contract.", `{"job":"j","result":"succeeded"}` + "\n", migration.Succeeded},
		"LogOnTop":   {"Logs belong on stderr.", "starting\n" + `{"result":"succeeded"}`, ""},
		"LogBelow":   {"So do last words.", `{"result":"succeeded"}` + "\ndone\n", ""},
		"TwoReports": {"Two objects are one too many.", `{"result":"succeeded"}{"result":"failed"}`, ""},
		"Unknown":    {"A field of no contract is a typing error.", `{"reslt":"succeeded"}`, ""},
		"Nothing":    {"A run that says nothing has no report.", "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			report, err := readReport([]byte(tc.stdout))
			if err == nil && report.Result != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("%s\nreadReport(%q): %+v, %v; want result %q", tc.reason, tc.stdout, report, err, tc.want)
			}
		})
	}
}

func request(verb, resource, namespace, name string) faultproxy.Request {
	return faultproxy.Request{
		Verb: verb, GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: resource},
		Namespace: namespace, Name: name,
	}
}

func TestWorks(t *testing.T) {
	s := &Subject{StateNamespace: kyma.StateNamespace}
	cases := map[string]struct {
		reason  string
		request faultproxy.Request
		want    bool
	}{
		"Change":         {"A change of the migration is work.", request("create", "httpsources", "kyma-integration", "x"), true},
		"StateNamespace": {"So is one in the state namespace.", request("patch", "deployments", kyma.StateNamespace, "x"), true},
		"Read":           {"Reading is no write.", request("get", "httpsources", "kyma-integration", "x"), false},
		"Lease":          {"The lock is the engine's.", request("update", "leases", kyma.StateNamespace, "eventmesh-migration"), false},
		"Journal":        {"The journal is the engine's.", request("create", "secrets", kyma.StateNamespace, "eventmesh-migration-j-1-0000"), false},
		"Report":         {"The report is the engine's.", request("create", "configmaps", kyma.StateNamespace, "eventmesh-migration-j"), false},
		"Elsewhere":      {"In another namespace such a name means nothing.", request("create", "configmaps", "prod", "eventmesh-migration-j"), true},
		"Event":          {"An Event announces.", request("create", "events", "prod", "x"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := s.works(tc.request); got != tc.want {
				t.Errorf("%s\nworks(%s): %v, want %v", tc.reason, tc.request, got, tc.want)
			}
		})
	}
}

func TestToldOfTheft(t *testing.T) {
	entry := func(verb string, status int) faultproxy.Entry {
		return faultproxy.Entry{Request: request(verb, "leases", kyma.StateNamespace, "eventmesh-migration"), Done: true, Status: status}
	}
	cases := map[string]struct {
		reason string
		log    []faultproxy.Entry
		want   bool
	}{
		"Renewed":     {"Nobody took anything.", []faultproxy.Entry{entry("get", http.StatusOK), entry("update", http.StatusOK)}, false},
		"Refused":     {"A conflict alone may be anything.", []faultproxy.Entry{entry("get", http.StatusOK), entry("update", http.StatusConflict)}, false},
		"RefusedRead": {"It has read whose the Lease is.", []faultproxy.Entry{entry("update", http.StatusConflict), entry("get", http.StatusOK)}, true},
		"ReadFailed":  {"It tried to, in vain.", []faultproxy.Entry{entry("update", http.StatusConflict), entry("get", http.StatusServiceUnavailable)}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := toldOfTheft(tc.log); got != tc.want {
				t.Errorf("%s\ntoldOfTheft: %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// TestProcess runs the shell as the program under test.
func TestProcess(t *testing.T) {
	t.Setenv("KUBECONFIG", "somebody's")
	const report = `{"job":"j","result":"%s"}`
	for name, tc := range map[string]struct {
		reason string
		script string
		env    []string
		code   int
		stdout string
		result migration.Result // "": no report is read
	}{
		"NoEnvironment": {reason: "nothing of this process leads it to a cluster", script: `echo "$KUBECONFIG"`, stdout: "\n"},
		"Environment":   {reason: "what it is given it has", script: `echo "$KUBECONFIG"`, env: []string{"KUBECONFIG=mine"}, stdout: "mine\n"},
		"ExitCode":      {reason: "the exit code is its own", script: "exit 124", code: 124},
		"Report":        {reason: "a report fits its exit code", script: fmt.Sprintf("echo '"+report+"'; exit 5", migration.Locked), code: migration.ExitLocked, result: migration.Locked},
		"Left":          {reason: "that a failure was left is in the exit code only", script: fmt.Sprintf("echo '"+report+"'; exit 3", migration.FailedResult), code: migration.ExitPartlyRestored, result: migration.FailedResult},
		"Interrupted":   {reason: "so is the signal", script: fmt.Sprintf("echo '"+report+"'; exit 143", migration.Interrupted), code: 143, result: migration.Interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			p := Run(t, process.Program{Binary: "/bin/sh", Args: []string{"-c", tc.script}, Env: tc.env})
			if code := p.Wait(); code != tc.code {
				t.Errorf("%s: exit code %d, want %d", tc.reason, code, tc.code)
			}
			if tc.result != "" {
				if r, _ := p.Report(); r.Result != tc.result {
					t.Errorf("%s: result %q, want %q", tc.reason, r.Result, tc.result)
				}
			} else if p.Stdout() != tc.stdout {
				t.Errorf("%s: stdout %q, want %q", tc.reason, p.Stdout(), tc.stdout)
			}
		})
	}
}

// complaints collects what a test would have failed with.
type complaints struct {
	testing.TB
	said []string
}

func (c *complaints) Helper() {}

func (c *complaints) Errorf(format string, args ...any) {
	c.said = append(c.said, fmt.Sprintf(format, args...))
}

// TestProcessComplains: what is wrong with a program fails the test that runs it.
func TestProcessComplains(t *testing.T) {
	for name, tc := range map[string]struct {
		script, want string
	}{
		"AnotherCode": {`echo '{"job":"j","result":"succeeded"}'; exit 1`, "exit code 1"},
		"Race":        {`echo '{"job":"j","result":"succeeded"}'; echo "WARNING: DATA RACE" >&2`, "a data race or a panic"},
		"Panic":       {`echo '{"job":"j","result":"succeeded"}'; printf '\npanic: nil\n' >&2`, "a data race or a panic"},
		"Nothing":     {`echo '{"job":"j","result":"succeeded"}'`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := &complaints{TB: t}
			Start(c, process.Program{Binary: "/bin/sh", Args: []string{"-c", tc.script}}).Report()
			if said := strings.Join(c.said, "\n"); !strings.Contains(said, tc.want) || (said == "") != (tc.want == "") {
				t.Errorf("it complains %q, want %q", said, tc.want)
			}
		})
	}
}
