package registry

import (
	"fmt"
	"slices"

	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
)

// Chain is what the hooks of one Kyma chart run, in this order.
type Chain struct {
	Component string
	// Pre runs before an upgrade, Post after it, and Rollback before "helm rollback".
	Pre, Post, Rollback []Step
}

// Step is one run of a job.
type Step struct {
	Job, Command string
	// Flags are added to those that the job has in every chain.
	Flags []string
	// Always: it cannot be left out.
	Always bool
}

// Chains are those of the charts that have hooks.
func Chains(all []Entry) ([]Chain, error) {
	if err := check(all); err != nil {
		return nil, err
	}
	var chains []Chain
	for _, component := range charts() {
		c := Chain{Component: component, Pre: steps(all, jobmanager.Before(component)), Post: steps(all, jobmanager.After(component))}
		for _, e := range slices.Backward(inOrder(all, jobmanager.After(component))) {
			if e.Chart != nil && e.Chart.UndoneByRollback {
				c.Rollback = append(c.Rollback, Step{Job: e.Name(), Command: "undo"})
			}
		}
		chains = append(chains, c)
	}
	return chains, nil
}

// charts are the components whose charts get hooks.
func charts() []string { return []string{Core, ApplicationConnector, ClusterEssentials} }

func steps(all []Entry, hook jobmanager.Hook) []Step {
	var out []Step
	for i := range all {
		if e := &all[i]; e.Chart != nil && e.Chart.Gate != nil && jobmanager.Before(e.Chart.Gate.Before).String() == hook.String() {
			out = append(out, Step{Job: e.Name(), Command: "plan", Flags: e.Chart.Gate.Flags, Always: true})
		}
	}
	for _, e := range inOrder(all, hook) {
		if e.Chart != nil && e.Chart.Gate == nil {
			out = append(out, Step{Job: e.Name(), Command: "run", Flags: e.Chart.Flags[hook.String()]})
		}
	}
	return out
}

// InOrder are the names of the jobs of a hook, in the order in which the charts run them:
// each after those that it names, and otherwise in that of the table.
func InOrder(all []Entry, hook jobmanager.Hook) []string {
	var names []string
	for _, e := range inOrder(all, hook) {
		names = append(names, e.Name())
	}
	return names
}

func inOrder(all []Entry, hook jobmanager.Hook) []*Entry {
	after := map[string][]string{}
	for i := range all {
		for _, h := range all[i].Hooks {
			if h.String() == hook.String() {
				after[all[i].Name()] = h.After
			}
		}
	}
	var out []*Entry
	done := map[string]bool{}
	for len(out) < len(after) {
		next := slices.IndexFunc(all, func(e Entry) bool {
			names, here := after[e.Name()]
			return here && !done[e.Name()] && !slices.ContainsFunc(names, func(name string) bool { return !done[name] })
		})
		// check has refused circles.
		done[all[next].Name()] = true
		out = append(out, &all[next])
	}
	return out
}

// check refuses what the charts cannot run.
func check(all []Entry) error {
	if _, err := jobmanager.New(jobmanager.Options{Engine: jobmanager.ForCluster(nil)}, Components(), Jobs(all)...); err != nil {
		return err
	}
	for i := range all {
		e := &all[i]
		if e.Chart == nil {
			continue
		}
		hooks := map[string]bool{}
		for _, h := range e.Hooks {
			hooks[h.String()] = true
			if e.Chart.Gate == nil && !slices.Contains(charts(), h.Component) {
				return fmt.Errorf("job %s: the chart of %s has no hooks", e.Name(), h.Component)
			}
		}
		if gate := e.Chart.Gate; gate != nil && !slices.Contains(charts(), gate.Before) {
			return fmt.Errorf("job %s: the chart of %s has no hooks", e.Name(), gate.Before)
		}
		for hook := range e.Chart.Flags {
			if !hooks[hook] {
				return fmt.Errorf("job %s: the charts have flags for the hook %s, to which it does not belong", e.Name(), hook)
			}
		}
	}
	return nil
}
