package suite

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
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
	s := &Subject{StateNamespace: engine.DefaultStateNamespace}
	cases := map[string]struct {
		reason  string
		request faultproxy.Request
		want    bool
	}{
		"Change":         {"A change of the migration is work.", request("create", "httpsources", "kyma-integration", "x"), true},
		"StateNamespace": {"So is one in the state namespace.", request("patch", "deployments", engine.DefaultStateNamespace, "x"), true},
		"Read":           {"Reading is no write.", request("get", "httpsources", "kyma-integration", "x"), false},
		"Lease":          {"The lock is the engine's.", request("update", "leases", engine.DefaultStateNamespace, "eventmesh-migration"), false},
		"Journal":        {"The journal is the engine's.", request("create", "secrets", engine.DefaultStateNamespace, "eventmesh-migration-j-1-0000"), false},
		"Report":         {"The report is the engine's.", request("create", "configmaps", engine.DefaultStateNamespace, "eventmesh-migration-j"), false},
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
		return faultproxy.Entry{Request: request(verb, "leases", engine.DefaultStateNamespace, "eventmesh-migration"), Done: true, Status: status}
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
