package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const connectorValues = `connector_service:
  enabled: &connectorServiceEnabled true
global:
  # where everything comes from
  containerRegistry:
    path: eu.gcr.io/kyma-project
  application_operator:
    dir:
    version: 39d1ab87 # the operator
  application_operator_tests:
    dir: develop/
    version: 39d1ab87
  event_service:
    version: cd9874af
  strictMode: "enabled"
connection_token_handler:
  enabled: *connectorServiceEnabled
`

func TestNameImages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(connectorValues), 0o600); err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(
		"    dir:\n    version: 39d1ab87 # the operator\n", "    dir: \"eventmesh-migration/\"\n    version: \"v1\"\n",
		"    version: cd9874af\n", "    dir: \"eventmesh-migration/\"\n    version: \"v1\"\n",
	).Replace(connectorValues)
	for range 2 { // it can be repeated
		if err := nameImages(file, "eu.gcr.io/kyma-project/eventmesh-migration", "v1", ""); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("values.yaml (-want +got):\n%s", diff)
		}
	}
}

// Fails on the commit before: the images were named by a tag only, which may name another one
// tomorrow.
func TestNameImagesByDigest(t *testing.T) {
	dir := t.TempDir()
	file, digests := filepath.Join(dir, "values.yaml"), filepath.Join(dir, "digests")
	digest := func(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }
	const path = "eu.gcr.io/kyma-project/eventmesh-migration"
	operator := path + "/application-operator@" + digest("a") + "\n"
	for _, content := range []string{operator, operator + path + "/event-service:v1@" + digest("b") + "\n"} {
		for name, text := range map[string]string{file: connectorValues, digests: content} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := nameImages(file, path, "v1", digests)
		if content == operator {
			if err == nil || !strings.Contains(err.Error(), "names no digest for event-service") {
				t.Errorf("a program without a digest: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"application_operator": "v1@" + digest("a"), "event_service": "v1@" + digest("b")} {
		if version := lookup(got, name, "version"); version != want {
			t.Errorf("%s has the version %s, want %s", name, version, want)
		}
	}
}

func TestNameImagesRefuses(t *testing.T) {
	for _, tc := range []struct {
		reason, values, repository, tag, want string
	}{
		{"no tag", connectorValues, "eu.gcr.io/kyma-project/x", "", "-repository and -tag"},
		{"a registry that the chart cannot name: it has one for all images", connectorValues, "example.com/x", "v1", `takes all images from "eu.gcr.io/kyma-project"`},
		{"another chart", "global:\n  containerRegistry: {path: a}\n", "a/b", "v1", "there is no global.application_operator"},
		{"a value that is elsewhere", strings.Replace(connectorValues, "global:\n", "global:\n  other: {}\nmore:\n", 1), "eu.gcr.io/kyma-project/x", "v1", "takes all images from"},
		{
			"the block of the same name under something else", strings.Replace(connectorValues, "global:\n", "other:\n  event_service:\n    dir: a\nglobal:\n", 1),
			"eu.gcr.io/kyma-project/x", "v1", "a form that this program cannot edit",
		},
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(tc.values), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := nameImages(file, tc.repository, tc.tag, ""); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", tc.reason, err, tc.want)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != tc.values {
			t.Errorf("%s: the file was changed, or is gone: %v", tc.reason, err)
		}
	}
}
