package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/jobs/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/httpsource"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/purge"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/scaledown"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/serviceinstance"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/trigger"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// job is one that the chart runs, with what it does in the state namespace.
type job interface {
	migration.Job
	migration.Configurable
	migration.Accessor
}

// values are the settings of jobs that are values of the chart: while a table is
// read, the setting's value is the template that yields it, quotes included.
var values = map[string]string{
	"integration-namespace": "{{ .Values.namespaces.integration | quote }}",
	"event-bus-namespace":   "{{ .Values.namespaces.eventBus | quote }}",
	"tiller-namespace":      "{{ .Values.namespaces.tiller | quote }}",
}

// nats is a fixed namespace that a cluster may lack; natsPods are the ports of pods
// that are asked there. Without one there is no row: a rule without names is for all.
const (
	state    = "{{ .Values.namespaces.state | quote }}"
	nats     = "{{ .Values.namespaces.nats | quote }}"
	natsPods = `[{{ range $i, $pod := .Values.nats.pods }}{{ if $i }}, {{ end }}{{ printf "%%s:%d" $pod | quote }}{{ end }}]`
)

type table struct {
	job  string
	rows []migration.Access
}

// tables are those of all jobs, in the order of their names.
func tables() []table {
	var all []table
	add := func(j job, state []migration.Access, access func() []migration.Access) {
		for _, s := range j.Settings() {
			if template, ok := values[s.Name]; ok {
				*s.Value.(*string) = template
			}
		}
		all = append(all, table{j.Name(), append(access(), state...)})
	}
	writes := func(j job) { add(j, migration.WriterState(state), j.Access) }
	writes(httpsource.New())
	writes(serviceinstance.New())
	writes(trigger.New())
	writes(scaledown.New())
	verify := eventservice.New()
	add(verify, migration.ReaderState(state), verify.Access)
	// The chart runs its plan only.
	gate := purge.New()
	add(gate, migration.PlanState(state), func() []migration.Access { return purge.PlanAccess(gate) })
	slices.SortFunc(all, func(a, b table) int { return cmp.Compare(a.job, b.job) })
	return all
}

// accessTemplate is the named template with the tables of all jobs.
func accessTemplate() []byte {
	var b bytes.Buffer
	b.WriteString("{{/* Generated from the access.go of each job in internal/jobs by \"make charts\": change it there. */}}\n")
	b.WriteString("{{- define \"eventmesh-migration.access\" -}}\n")
	for _, t := range tables() {
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
		fmt.Fprintf(b, ", namespace: %s", nats)
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
