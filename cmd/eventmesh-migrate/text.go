package main

import (
	"fmt"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/cli"
	"github.com/kyma-project/eventmesh-migration/internal/present"
	"github.com/kyma-project/eventmesh-migration/internal/verify"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// caller is how the program was called, for commands that are told.
func (a *app) caller() present.Caller {
	c := present.Caller{Program: a.name}
	c.Cluster, c.Work = a.Given()
	return c
}

// present are the options of a text; full is the command whose -o wide has everything.
func (a *app) present(state present.State, full string) present.Options {
	return present.Options{Width: a.Width(), Full: full, Caller: state.Caller, Next: present.Next(state)}
}

// runText is the report of a run or a plan for people.
func (a *app) runText(c *cli.Connection, r *jobmanager.Report, s jobmanager.Selection) string {
	state := present.State{Caller: a.caller(), Command: r.Command, Components: s.Components, Jobs: s.Jobs, ExitCode: r.ExitCode}
	for _, phase := range s.Phases {
		state.Phases = append(state.Phases, string(phase))
	}
	phases := map[string]map[jobmanager.Phase]bool{}
	for i := range r.Jobs {
		if phases[r.Jobs[i].Job] == nil {
			phases[r.Jobs[i].Job] = map[jobmanager.Phase]bool{}
		}
		phases[r.Jobs[i].Job][r.Jobs[i].Phase] = true
	}
	text := present.Report{}
	for i := range r.Jobs {
		j := &r.Jobs[i]
		row := present.Job{
			Name: j.Job, Result: j.Result, Message: j.Message, Failed: j.ExitCode != migration.ExitOK && j.Result != jobmanager.ResultNotStarted,
			Findings: j.Findings,
		}
		if len(phases[j.Job]) > 1 {
			row.Phase = string(j.Phase)
		}
		if j.Report != nil {
			row.Changes, row.Findings = j.Report.Changes, j.Report.Findings
		}
		text.Jobs = append(text.Jobs, row)
		state.Findings = append(state.Findings, present.Of(row.Findings)...)
		if state.Unready == nil {
			state.Unready = unready(row.Changes)
		}
	}
	changes := present.Changes(text.Jobs)
	state.Changes = changes.Writes
	server := strings.TrimSpace(c.Config.Host)
	if r.Command == "plan" {
		text.Title = fmt.Sprintf("Plan for %s (%s): %s. Nothing was written", server, c.Source, changes)
	} else {
		text.Title = fmt.Sprintf("Run on %s (%s): %s, in %s", server, c.Source, r.Message, secondsOf(r.Seconds))
	}
	if r.ExitCode != migration.ExitOK {
		text.Last = []string{fmt.Sprintf("Exit code %d: %s. What to do: %s", r.ExitCode, cli.Meaning(r.ExitCode), cli.Anchor(r.ExitCode))}
	}
	return present.Text(text, a.present(state, "add -o wide or -o json"))
}

// unready is the first change whose object was not ready in time, nil if there is none.
func unready(changes []migration.ChangeReport) *migration.ChangeReport {
	for i := range changes {
		if ch := &changes[i]; ch.Result == migration.ChangeFailed && (ch.Verb == migration.Create || ch.Verb == migration.Await || ch.Verb == migration.Recreate) {
			return ch
		}
	}
	return nil
}

// findingsText is the result of verify for people.
func (a *app) findingsText(found []verify.Finding) string {
	state := present.State{Caller: a.caller(), Command: "verify", Namespace: a.namespace, ExitCode: a.code}
	count := map[migration.Severity]int{}
	for _, d := range found {
		count[d.Severity]++
		state.Findings = append(state.Findings, present.Finding{Severity: d.Severity, ID: d.ID, Object: d.Object, Problem: d.Problem, Command: d.Command, Note: d.Note})
	}
	title := "Nothing is wrong."
	if len(found) > 0 {
		title = fmt.Sprintf("%d errors, %d warnings.", count[migration.Error], count[migration.Warning])
	}
	return present.Findings(title, state.Findings, a.present(state, "add -o wide or -o json"))
}

// tableWidth is 0 where nothing is cut: with -o wide, and for pipes and files.
func (a *app) tableWidth() int {
	if a.output == formWide || !a.IsTerminal(a.Stdout) {
		return 0
	}
	return a.Width()
}

// statusFindings are those of the last reports, by kind.
func (a *app) statusFindings(s status) string {
	state := a.stateOf(s)
	if len(state.Findings) == 0 {
		return ""
	}
	return present.Findings("", state.Findings, present.Options{Width: a.Width(), Full: "add -o wide or -o json", Caller: state.Caller, Lines: present.DefaultLines / 2})
}

func (a *app) statusNext(s status) string {
	return present.NextText(a.present(a.stateOf(s), ""))
}

func (a *app) stateOf(s status) present.State {
	state := present.State{Caller: a.caller(), Command: "status"}
	for _, j := range s.Jobs {
		state.Reported = state.Reported || j.Result != ""
		state.Findings = append(state.Findings, present.Of(j.Errors)...)
		state.Findings = append(state.Findings, present.Of(j.Deferred)...)
	}
	for _, j := range s.Journals {
		state.Open = state.Open || j.Open
	}
	state.Running = state.Open && s.Lock.Live(now())
	return state
}
