package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kyma-project/eventmesh-migration/internal/jobs/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/httpsource"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/purge"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/scaledown"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/serviceinstance"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/trigger"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration"
)

// job is one that the chart runs, with what it does in the state namespace.
type job interface {
	migration.Job
	migration.Configurable
	migration.Accessor
}

// values are the settings of jobs that are values of the chart: while a table is
// read, the setting's value is the template that yields it.
var values = map[string]string{
	"integration-namespace": "{{ .Values.namespaces.integration }}",
	"event-bus-namespace":   "{{ .Values.namespaces.eventBus }}",
	"tiller-namespace":      "{{ .Values.namespaces.tiller }}",
}

// nats is a fixed namespace that a cluster may lack.
const (
	state = "{{ .Values.namespaces.state }}"
	nats  = "{{ .Values.namespaces.nats }}"
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
			fmt.Fprintf(&b, "# %s\n- {apiGroups: [%q], resources: [%q], verbs: %s", row.Why, row.Group, row.Resource, list(row.Verbs))
			if len(row.Names) > 0 {
				fmt.Fprintf(&b, ", resourceNames: %s", list(row.Names))
			}
			switch row.Namespace {
			case "":
			case kyma.NATSNamespace:
				fmt.Fprintf(&b, ", namespace: %q", nats)
			default:
				fmt.Fprintf(&b, ", namespace: %q", row.Namespace)
			}
			if row.Knative != "" {
				fmt.Fprintf(&b, ", knative: %s", row.Knative)
			}
			b.WriteString("}\n")
		}
	}
	b.WriteString("{{- end -}}\n")
	return b.Bytes()
}

func list(words []string) string {
	raw, err := json.Marshal(words)
	if err != nil {
		panic(err) // strings
	}
	return string(raw)
}
