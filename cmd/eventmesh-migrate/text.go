package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/nextstep"
	"github.com/kyma-project/eventmesh-migration/internal/migration/verify"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// text tells people what a command has found, and which is next.
type text struct {
	caller present.Caller
	// name of the cluster, as people know it.
	cluster string
	// namespace that was selected.
	namespace string
	width     int
	// uncut: tables are shown whole, with -o wide, and in pipes and files.
	uncut bool
	code  int
}

// textOf is for what the command prints; c may be nil.
func textOf(a *app, c *command.Connection) text {
	t := text{caller: cli.Caller(a.name), namespace: a.namespace, width: a.Width(), uncut: a.output == formWide || !a.IsTerminal(a.Stdout), code: a.code}
	t.caller.Timeout = a.Timeout()
	t.caller.Cluster, t.caller.Work = a.Given()
	if c != nil {
		t.cluster = c.Cluster()
	}
	return t
}

const full = "add -o wide or -o json"

func (t text) options(state nextstep.State) present.Options {
	return present.Options{Width: t.width, Full: full, Caller: t.caller, Next: nextstep.After(state)}
}

// heading names the cluster above what a command has read of it.
func (t text) heading() string {
	return strings.Join(frame.Wrap("Cluster "+t.cluster, t.width), "\n")
}

// run is the report of a run or a plan for people.
func (t text) run(r *jobmanager.Report, s jobmanager.Selection) string {
	told, state := t.ran(r, s)
	return present.Text(told, t.options(state))
}

// ran is what is told of a run or a plan, and what the next command depends on.
func (t text) ran(r *jobmanager.Report, s jobmanager.Selection) (told present.Report, state nextstep.State) {
	state = nextstep.State{Caller: t.caller, Command: r.Command, Components: s.Components, Jobs: s.Jobs, Namespace: r.Namespace, ExitCode: r.ExitCode}
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
			if state.Unready == nil {
				state.Unready = present.Unready(j.Report)
			}
		}
		told.Jobs = append(told.Jobs, row)
		state.Findings = append(state.Findings, present.Of(row.Findings)...)
	}
	changes := present.Changes(told.Jobs)
	state.Changes = changes.Writes
	switch r.Command {
	case "plan":
		told.Title = fmt.Sprintf("Plan for %s: %s. Nothing was written", t.cluster, changes)
	case "undo":
		told.Title = fmt.Sprintf("Undo on %s: %s, in %s", t.cluster, r.Message, secondsOf(r.Seconds))
	default:
		told.Title = fmt.Sprintf("Run on %s: %s, in %s", t.cluster, r.Message, secondsOf(r.Seconds))
	}
	if r.ExitCode != migration.ExitOK {
		told.Last = cli.Program().ExitLines(r.ExitCode)
	}
	return told, state
}

// totals of findings, as a sentence.
func totals(found []present.Finding) string {
	count := map[migration.Severity]int{}
	for i := range found {
		count[found[i].Severity]++
	}
	return migration.Count(count[migration.Error], "error") + ", " + migration.Count(count[migration.Warning], "warning") + "."
}

// verified is the result of verify for people. plan is what a run would do now, nil if that is not
// known.
func (t text) verified(found []verify.Finding, plan *jobmanager.Report) string {
	state := nextstep.State{Caller: t.caller, Command: "verify", Namespace: t.namespace, ExitCode: t.code}
	if plan != nil {
		_, planned := t.ran(plan, jobmanager.Selection{})
		state.Plan = &planned
	}
	for _, d := range found {
		state.Findings = append(state.Findings, present.Finding{Severity: d.Severity, ID: d.ID, Object: d.Object, Problem: d.Problem, Command: d.Command, Note: d.Note})
	}
	title := "Nothing is wrong."
	if len(found) > 0 {
		title = totals(state.Findings)
	}
	return present.Findings([]string{t.heading(), title}, state.Findings, t.options(state))
}

// tableWidth is 0 where nothing is cut.
func (t text) tableWidth() int {
	if t.uncut {
		return 0
	}
	return t.width
}

// statusFindings are those of the last reports, by job and kind. The jobs share the lines.
func (t text) statusFindings(s status) string {
	told := slices.DeleteFunc(slices.Clone(s.Jobs), func(j jobStatus) bool { return len(j.Errors)+len(j.Deferred) == 0 })
	var b strings.Builder
	for _, j := range told {
		b.WriteString("\n" + present.Findings([]string{"Last report of " + j.Job + ":"}, present.Of(slices.Concat(j.Errors, j.Deferred)), present.Options{
			Width: t.width, Full: full, Caller: t.caller, Lines: present.DefaultLines / 2 / len(told),
		}))
	}
	return b.String()
}

func (t text) statusNext(s status) string {
	return present.NextText(t.options(t.state(s)))
}

func (t text) state(s status) nextstep.State {
	state := nextstep.State{Caller: t.caller, Command: "status"}
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
