package kyma

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestMeshMigrationRuns(t *testing.T) {
	job := func(name, label, conditions string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		text := fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":%q,"labels":{"app.kubernetes.io/name":%q}},"status":{"conditions":[%s]}}`, name, label, conditions)
		if err := u.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return u
	}
	const name = "event-bus-mesh-namespaces-migration-mesh-namespaces-migration"
	for _, tc := range []struct {
		reason string
		job    *unstructured.Unstructured
		want   bool
	}{
		{"the stock chart's Job at work", job(name, "mesh-namespaces-migration", ""), true},
		{"under another name", job("j", "mesh-namespaces-migration", ""), true},
		{"complete", job(name, "", `{"type":"Complete","status":"True"}`), false},
		{"failed", job(name, "", `{"type":"Failed","status":"True"}`), false},
		{"suspended is not ended", job(name, "", `{"type":"Suspended","status":"True"}`), true},
		{"another Job", job("event-bus-pre-upgrade", "event-bus", ""), false},
	} {
		if got := MeshMigrationRuns(tc.job); got != tc.want {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	}
}
