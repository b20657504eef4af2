package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/helm"
)

const ours = "../../charts/application"

// theirs is a chart as that in the operator's image: the event path among other
// things, in one file with them or in its own.
func theirs() map[string]string {
	return map[string]string{
		"Chart.yaml": "name: application\nversion: 0.0.1\n",
		"values.yaml": `eventService:
  deployment:
    labels: {grafana: "enabled", alerts: "enabled"}
    image: {pullPolicy: IfNotPresent}
    args: {externalAPIPort: 8081, maxRequestSize: 65536, requestTimeout: 10, requestLogging: false, eventsTargetURLV1: http://a}
  service:
    externalapi: {port: 8081}
`,
		"templates/deployment.yaml": `{{- if .Values.gateway }}
kind: Deployment
metadata:
  name: {{ .Release.Name }}-application-gateway
{{- end }}
---
{{- if not .Values.other }}
kind: Deployment
metadata:
  name: {{.Release.Name}}-event-service
{{- end }}
`,
		"templates/service.yaml": `kind: Service
metadata:
  name: {{ .Release.Name }}-event-service
---
kind: Service
metadata:
  name: {{ .Release.Name }}-application-gateway
`,
		"templates/httpsource.yaml": "kind: HTTPSource\nmetadata:\n  name: {{ .Release.Name }}\n",
		"templates/role-binding.yaml": `kind: ServiceAccount
metadata:
  name: "{{ .Release.Name }}-event-service"
---
kind: ClusterRole
metadata:
  name: {{ .Release.Name }}-application-gateway
`,
		"templates/_helpers.tpl": `{{- define "name" }}x{{ end }}`,
	}
}

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := helm.WriteChart(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOverlay(t *testing.T) {
	into := filepath.Join(t.TempDir(), "application")
	if err := overlay(write(t, theirs()), ours, into); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(into, name))
		if err != nil {
			t.Error(err)
		}
		return string(raw)
	}
	const emptied = "{{- /* replaced by the event path on the mesh */ -}}\n"
	for name, want := range map[string]string{
		"Chart.yaml": theirs()["Chart.yaml"],
		// The gateway stays, the event-service goes.
		"templates/deployment.yaml":   strings.Split(theirs()["templates/deployment.yaml"], "---\n")[0],
		"templates/service.yaml":      strings.Split(theirs()["templates/service.yaml"], "---\n")[1],
		"templates/role-binding.yaml": strings.Split(theirs()["templates/role-binding.yaml"], "---\n")[1],
		"templates/_helpers.tpl":      theirs()["templates/_helpers.tpl"],
	} {
		if diff := cmp.Diff(want, read(name)); diff != "" || want == emptied {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, name := range []string{"templates/event-service.yaml", "templates/httpsource.yaml"} {
		raw, err := os.ReadFile(filepath.Join(ours, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(raw), read(name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := os.Stat(filepath.Join(into, "templates", guard)); err == nil {
		t.Error("the guard would refuse every upgrade")
	}
	values := read("values.yaml")
	if !strings.HasPrefix(values, theirs()["values.yaml"]) || !strings.Contains(values, "\neventServiceOnMesh:\n") || !strings.Contains(values, "maxInFlight: 512") {
		t.Errorf("values.yaml:\n%s", values)
	}
}

func TestOverlayRefuses(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(map[string]string)
		want   string
	}{
		{"a folder that is no chart", func(f map[string]string) { delete(f, "Chart.yaml") }, "is no chart"},
		{
			"a chart without event-service: it is another one", func(f map[string]string) { delete(f, "templates/deployment.yaml") },
			"0 documents for Deployment {{.Release.Name}}-event-service",
		},
		{
			"two of them", func(f map[string]string) { f["templates/more.yaml"] = f["templates/httpsource.yaml"] },
			"2 documents for HTTPSource {{.Release.Name}}",
		},
		{
			"an action over several documents", func(f map[string]string) {
				f["templates/service.yaml"] = "{{ if .Values.x }}\n" + f["templates/service.yaml"] + "{{ end }}\n"
			},
			"templates/service.yaml: Service {{.Release.Name}}-event-service cannot be cut out",
		},
		{
			"a file of ours that holds something else there", func(f map[string]string) { f["templates/event-service.yaml"] = "kind: Role\n" },
			"templates/event-service.yaml has more",
		},
		{"an overlay again", func(f map[string]string) { f["values.yaml"] += "eventServiceOnMesh: {}\n" }, "it is an overlay"},
		{
			"values that our templates need", func(f map[string]string) {
				f["values.yaml"] = strings.Replace(f["values.yaml"], "requestTimeout: 10, ", "", 1)
			},
			"lacks the values eventService.deployment.args.requestTimeout",
		},
	} {
		files := theirs()
		tc.change(files)
		into := filepath.Join(t.TempDir(), "application")
		err := overlay(write(t, files), ours, into)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.reason, err)
		}
		if _, err := os.Stat(into); err == nil {
			t.Errorf("%s: something was written", tc.reason)
		}
	}
	if err := overlay(write(t, theirs()), ours, t.TempDir()); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a folder that exists: %v", err)
	}
}
