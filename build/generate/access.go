package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// planAccessor is a gate: the chart runs its plan only.
type planAccessor interface {
	PlanAccess() []migration.Access
}

// namespaces are the settings of jobs that are values of the chart, by the keys of
// values.yaml: each job that has the setting gets the flag.
var namespaces = []struct{ setting, key string }{
	{"integration-namespace", "integration"},
	{"event-bus-namespace", "eventBus"},
	{"tiller-namespace", "tiller"},
}

// placeholder is the template that yields a namespace, quotes included.
func placeholder(key string) string { return "{{ .Values.namespaces." + key + " | quote }}" }

// natsPods are the ports of pods that are asked in the namespace of NATS Streaming, which
// a cluster may lack. Without one there is no row: a rule without names is for all.
const natsPods = `[{{ range $i, $pod := .Values.nats.pods }}{{ if $i }}, {{ end }}{{ printf "%%s:%d" $pod | quote }}{{ end }}]`

type table struct {
	job  string
	rows []migration.Access
}

// tables are those of the jobs that the chart runs, in the order of their names.
func tables(all []registry.Entry) ([]table, error) {
	var out []table
	for i := range all {
		e := &all[i]
		if e.Chart == nil {
			continue
		}
		// While a table is read, the value of a namespace is its template.
		for _, s := range settings(e) {
			for _, n := range namespaces {
				if s.Name == n.setting {
					*s.Value.(*string) = placeholder(n.key)
				}
			}
		}
		rows, err := accessOf(e)
		if err != nil {
			return nil, err
		}
		out = append(out, table{e.Name(), rows})
	}
	slices.SortFunc(out, func(a, b table) int { return cmp.Compare(a.job, b.job) })
	return out, nil
}

// settings are those of the job, if it has any.
func settings(e *registry.Entry) []migration.Setting {
	if c, ok := e.Job.(migration.Configurable); ok {
		return c.Settings()
	}
	return nil
}

// accessOf is what the job asks for where the chart runs it.
func accessOf(e *registry.Entry) ([]migration.Access, error) {
	state := placeholder("state")
	if e.Chart.Gate != nil {
		j, ok := e.Job.(planAccessor)
		if !ok {
			return nil, fmt.Errorf("job %s is a gate in the registry, but does not say what its plan asks for: PlanAccess is missing", e.Name())
		}
		return append(j.PlanAccess(), migration.PlanState(state)...), nil
	}
	j, ok := e.Job.(migration.Accessor)
	if !ok {
		return nil, fmt.Errorf("job %s is in the chart, but does not say what it asks for: Access is missing (access.go)", e.Name())
	}
	if _, reads := e.Job.(migration.OnlyReader); reads {
		return append(j.Access(), migration.ReaderState(state)...), nil
	}
	return append(j.Access(), migration.WriterState(state)...), nil
}

// accessTemplate is the named template with the tables.
func accessTemplate(tables []table) []byte {
	var b bytes.Buffer
	b.WriteString("{{/* Generated from the access.go of each job in internal/migration/jobs by \"make charts\": change it there. */}}\n")
	b.WriteString("{{- define \"eventmesh-migration.access\" -}}\n")
	for _, t := range tables {
		fmt.Fprintf(&b, "%s:\n", t.job)
		for _, row := range t.rows {
			writeRow(&b, row)
		}
	}
	b.WriteString("{{- end -}}\n")
	return b.Bytes()
}

// writeRow writes a rule, with what it is limited to.
func writeRow(b *bytes.Buffer, row migration.Access) {
	names, condition := list(row.Names), ""
	switch {
	case row.Served != "":
		condition = fmt.Sprintf(".Capabilities.APIVersions.Has %q", row.Served)
	case row.Resource == "pods/proxy":
		names, condition = fmt.Sprintf(natsPods, kyma.NATSMonitoringPort), ".Values.nats.pods"
	}
	if condition != "" {
		fmt.Fprintf(b, "{{- if %s }}\n", condition)
	}
	fmt.Fprintf(b, "# %s\n- {apiGroups: [%q], resources: [%q], verbs: %s", row.Why, row.Group, row.Resource, list(row.Verbs))
	if len(row.Names) > 0 {
		fmt.Fprintf(b, ", resourceNames: %s", names)
	}
	switch row.Namespace {
	case "":
	case kyma.NATSNamespace:
		fmt.Fprintf(b, ", namespace: %s", placeholder("nats"))
	default:
		fmt.Fprintf(b, ", namespace: %s", scalar(row.Namespace))
	}
	if row.Knative != "" {
		fmt.Fprintf(b, ", knative: %s", row.Knative)
	}
	b.WriteString("}\n")
	if condition != "" {
		b.WriteString("{{- end }}\n")
	}
}

func list(words []string) string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = scalar(word)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// scalar quotes a word. A template yields its quotes itself.
func scalar(word string) string {
	if strings.HasPrefix(word, "{{") {
		return word
	}
	return strconv.Quote(word)
}
