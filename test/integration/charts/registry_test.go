package charts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// components are those that the chart is for.
var components = []string{"core", "application-connector", "cluster-essentials"}

// chainOf is what the registry says that the hooks of a component run. Tests that are
// about every job ask it, so that a new job needs no line in them.
func chainOf(t *testing.T, component string) registry.Chain {
	t.Helper()
	chains, err := registry.Chains(registry.All())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(chains, func(c registry.Chain) bool { return c.Component == component })
	if i < 0 {
		t.Fatalf("no chain for %s", component)
	}
	return chains[i]
}

// lines are steps as rendering.chain returns them.
func lines(steps []registry.Step) []string {
	all := []string{}
	for _, s := range steps {
		all = append(all, strings.Join(append([]string{s.Job, s.Command}, s.Flags...), " "))
	}
	return all
}

// jobsOf are the names of the jobs of steps.
func jobsOf(steps []registry.Step) []string {
	var all []string
	for _, s := range steps {
		all = append(all, s.Job)
	}
	return all
}

// hookFlags are those that hooks add to the flags of a job.
func hookFlags(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, component := range components {
		c := chainOf(t, component)
		for _, s := range slices.Concat(c.Pre, c.Post, c.Rollback) {
			all = append(all, s.Flags...)
		}
	}
	return all
}

// without disables jobs: the value of --set.
func without(jobs ...string) string {
	var all []string
	for _, job := range jobs {
		all = append(all, fmt.Sprintf("jobs.%s.enabled=false", job))
	}
	return strings.Join(all, ",")
}

// chartJobs are the entries of the jobs that the chart runs.
func chartJobs() []registry.Entry {
	return slices.DeleteFunc(registry.All(), func(e registry.Entry) bool { return e.Chart == nil })
}

// onlyReads says whether the job writes nothing where the chart runs it.
func onlyReads(e registry.Entry) bool {
	_, reads := e.Job.(migration.OnlyReader)
	return reads || e.Chart.Gate != nil
}
