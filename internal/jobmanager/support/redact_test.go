package support

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

	"github.com/kyma-project/eventmesh-migration/internal/migration"
)

const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		// Secrets.
		"Authorization: Bearer s3cr3tvalue":  "Authorization: Bearer REDACTED",
		"basic dXNlcjpwYXNz rest":            "basic REDACTED rest",
		"it said " + token + " there":        "it said REDACTED there",
		"dial nats://me:s3cr3t@nats:4222":    "dial nats://REDACTED@nats:4222",
		"https://token123@github.com/x":      "https://REDACTED@github.com/x",
		"http://x/y?token=abc&a=b":           "http://x/y?token=REDACTED&a=b",
		"--password=abc --user=me":           "--password=REDACTED --user=me",
		"DB_PASSWORD=abc":                    "DB_PASSWORD=REDACTED",
		"password: abc":                      "password: REDACTED",
		`{"client_secret": "abc", "a": "b"}`: `{"client_secret": "REDACTED", "a": "b"}`,
		"x\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\ny": "x\nREDACTED\ny",
		"cut off -----BEGIN CERTIFICATE-----\nMII":                                  "cut off REDACTED",
		// What a ticket needs.
		"http://default-broker.shop.svc.cluster.local/":                  "http://default-broker.shop.svc.cluster.local/",
		"Secret kyma-system/eventmesh-migration-trigger-sync-r1-0000":    "Secret kyma-system/eventmesh-migration-trigger-sync-r1-0000",
		"--eventMeshURL=http://commerce.kyma-integration":                "--eventMeshURL=http://commerce.kyma-integration",
		"2 tokens were counted":                                          "2 tokens were counted",
		"Ready=False: NatssChannel is not bound at 2020-04-01T22:15:00Z": "Ready=False: NatssChannel is not bound at 2020-04-01T22:15:00Z",
	} {
		if diff := cmp.Diff(want, Text(in)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return u
}

func TestObject(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"Secret": {
			`{kind: Secret, metadata: {name: a}, data: {a: c2VjcmV0}, stringData: {b: plain}, type: Opaque}`,
			`{kind: Secret, metadata: {name: a}, data: {a: REDACTED}, stringData: {b: REDACTED}, type: Opaque}`,
		},
		"Environment": {
			`{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, env: [{name: DB, value: x}, {name: SINK_URI, value: "http://s"}, {name: REF, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}}`,
			`{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, env: [{name: DB, value: REDACTED}, {name: SINK_URI, value: "http://s"}, {name: REF, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}}`,
		},
		"Arguments": {
			`{kind: Pod, metadata: {name: a}, spec: {containers: [{args: ["--password=x", "--port=8080"]}]}}`,
			`{kind: Pod, metadata: {name: a}, spec: {containers: [{args: ["--password=REDACTED", "--port=8080"]}]}}`,
		},
		"Parameters": {
			`{kind: ServiceInstance, metadata: {name: a}, spec: {parameters: {color: blue, deep: {n: 7, on: true}}, parametersFrom: [{secretKeyRef: {name: s, key: k}}]}}`,
			`{kind: ServiceInstance, metadata: {name: a}, spec: {parameters: {color: REDACTED, deep: {n: REDACTED, on: true}}, parametersFrom: [{secretKeyRef: {name: s, key: k}}]}}`,
		},
		"Names": {
			`{kind: ServiceBinding, metadata: {name: a, annotations: {note: "token=x"}}, spec: {secretName: s, instanceRef: {name: i}, credentials: {user: u, password: p}}}`,
			`{kind: ServiceBinding, metadata: {name: a, annotations: {note: "token=REDACTED"}}, spec: {secretName: s, instanceRef: {name: i}, credentials: {user: REDACTED, password: REDACTED}}}`,
		},
		"Room": {
			`{kind: A, metadata: {name: a, managedFields: [{manager: m}], annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}}`,
			`{kind: A, metadata: {name: a}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := object(t, tc.in)
			before := in.DeepCopy()
			if diff := cmp.Diff(object(t, tc.want).Object, Object(in).Object); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(before, in); diff != "" {
				t.Errorf("the object itself was changed:\n%s", diff)
			}
		})
	}
}

// broken is a cluster that serves one kind, refuses one, and lacks the others.
type broken struct{ objects []*unstructured.Unstructured }

func (b broken) Served(_ context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	switch gk.Kind {
	case "Trigger":
		return migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: gk.Group, Version: "v1", Resource: "triggers"}, Kind: gk.Kind}, true, nil
	case "Broker":
		return migration.Resource{}, false, errors.New("https://me:s3cr3t@api does not answer")
	}
	return migration.Resource{}, false, nil
}

func (b broken) Each(_ context.Context, r migration.Resource, _ string, _ migration.ListOptions, do func(*unstructured.Unstructured) error) error {
	if r.Kind != "Trigger" {
		return errors.New(r.Resource + " is forbidden")
	}
	for _, u := range b.objects {
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
	for _, missing := range []string{"Broker.eventing.knative.dev: https://REDACTED@api does not answer", "the API server serves no such kind", "pods is forbidden"} {
		if !strings.Contains(files["ticket/missing.txt"], missing) {
			t.Errorf("%q is not noted in:\n%s", missing, files["ticket/missing.txt"])
		}
	}
}
