package diagnose

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return u
}

// broken is a cluster that serves one kind, refuses one, and lacks the others.
type broken struct{ objects []*unstructured.Unstructured }

func (b broken) Served(_ context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	switch gk.Kind {
	case "Trigger":
		return migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: gk.Group, Version: "v1", Resource: "triggers"}, Kind: gk.Kind}, true, nil
	case "Broker":
		return migration.Resource{}, false, errors.New("https://me:s3cr3t@api/x?code=s3cr3t does not answer")
	}
	return migration.Resource{}, false, nil
}

func (b broken) Each(_ context.Context, r migration.Resource, _ string, _ migration.ListOptions, do func(*unstructured.Unstructured) error) error {
	if r.Kind != "Trigger" {
		return errors.New(r.Resource + " is forbidden")
	}
	// The list begins again behind its first object.
	for _, u := range append(b.objects[:1:1], b.objects...) {
		if err := do(u); err != nil {
			return err
		}
	}
	return nil
}

// TestArchiveOfABrokenCluster has what could be had, and says what could not.
func TestArchiveOfABrokenCluster(t *testing.T) {
	var out bytes.Buffer
	a := New(&out, "ticket", time.Unix(0, 0))
	if err := a.JSON("version.json", map[string]string{"password": "s3cr3t", "version": "v1"}); err != nil {
		t.Fatal(err)
	}
	cluster := broken{[]*unstructured.Unstructured{
		object(t, `{kind: Trigger, metadata: {namespace: b, name: x}}`), object(t, `{kind: Trigger, metadata: {namespace: a, name: z}}`),
	}}
	if err := a.Objects(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
		if strings.Contains(string(content), "s3cr3t") {
			t.Errorf("%s holds a secret:\n%s", header.Name, content)
		}
	}
	if got, want := files["ticket/objects/triggers.eventing.knative.dev.yaml"], "---\nkind: Trigger\nmetadata:\n  name: z\n  namespace: a\n---\nkind: Trigger\nmetadata:\n  name: x\n  namespace: b\n"; got != want {
		t.Errorf("the Triggers (-want +got):\n%s", cmp.Diff(want, got))
	}
	for _, missing := range []string{"Broker.eventing.knative.dev: https://api/x?code=… does not answer", "the API server serves no such kind", "pods is forbidden"} {
		if !strings.Contains(files["ticket/missing.txt"], missing) {
			t.Errorf("%q is not noted in:\n%s", missing, files["ticket/missing.txt"])
		}
	}
}
