// Package eventbus proves eventservice-verify, eventbus-scaledown and eventbus-purge
// on a real API server with the real controllers of Deployments and namespaces.
package eventbus

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// cluster is the one control plane of this package's tests.
var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.Shared(&cluster, kubernetes.KnativeV1alpha1))
}

// want checks how a command ended.
func want(t *testing.T, r *migration.Report, result migration.Result, exit int) {
	t.Helper()
	if r.Result != result || r.ExitCode() != exit {
		raw, _ := json.MarshalIndent(r, "", "  ")
		t.Fatalf("got result %s, exit code %d; want %s, %d\n%s", r.Result, r.ExitCode(), result, exit, raw)
	}
}

// problems are a report's findings, one a line.
func problems(r *migration.Report) string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, string(f.Severity)+": "+f.String())
	}
	return strings.Join(all, "\n")
}
