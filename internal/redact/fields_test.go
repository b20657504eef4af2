package redact

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/manifest"
)

// TestFields: a message may show what a field is, and no secret.
func TestFields(t *testing.T) {
	of := manifest.Object(t, `{apiVersion: v1, kind: X, metadata: {labels: {a.b/c: d, a: e}}, spec: {replicas: 0, set: false, password: x, parameters: {p: x}, list: [1], long: `+strings.Repeat("ü", longestField)+`}}`)
	got := Fields(of, "metadata.labels.a.b/c", "metadata.labels.a", "metadata.labels.a.b", "spec.replicas", "spec.set", "spec.password", "spec.parameters.p", "spec.list[0]", "spec.list", "spec.none", "spec.long")
	long := got["spec.long"]
	delete(got, "spec.long")
	want := map[string]string{"metadata.labels.a.b/c": `"d"`, "metadata.labels.a": `"e"`, "spec.replicas": "0", "spec.set": "false", "spec.password": `"` + Mark + `"`, "spec.list": "[1]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(long) > longestField+len("…") || !strings.HasSuffix(long, "ü…") {
		t.Errorf("a long value: %s", long)
	}
	secret := manifest.Object(t, `{apiVersion: v1, kind: Secret, data: {a: eA==}}`)
	if got := Fields(secret, "data.a"); got["data.a"] != `"`+Mark+`"` {
		t.Errorf("of a Secret: %v", got)
	}
}
