// Package nextstep says which command a person types next. It knows the phases of the migration,
// and what they wait for.
package nextstep

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// State is what the choice of the next command depends on.
type State struct {
	present.Caller
	// Command is that which has ended: plan, run, undo, check, verify or status.
	Command string
	// Phases, Components and Jobs are the selection of the command; none selects all.
	Phases, Components, Jobs []string
	// Namespace that the command was limited to.
	Namespace string
	ExitCode  int
	// Changes that a plan has found to make.
	Changes int
	// Findings are what the command told. Those of status are of the stored reports.
	Findings []present.Finding
	// Unready is the object that was not ready in time, if a run failed by one.
	Unready *migration.ChangeReport
	// Open: an interrupted run is open. Running: another run works now. Both are for status.
	Open, Running bool
	// Reported: some job has reported before. It is for status.
	Reported bool
	// Plan is what a plan of the whole cluster has found, for verify; nil if that is not known.
	Plan *State
}

// OfJob is what the next command depends on after one job.
func OfJob(r *migration.Report, c present.Caller) State {
	s := present.StateOfJob(r, c)
	return State{
		Caller: c, Command: s.Command, Jobs: []string{r.Job}, ExitCode: s.ExitCode, Changes: s.Changes, Findings: s.Findings, Unready: s.Unready,
	}
}

// After returns what to do after a command. There is one step, or several of which a person
// chooses one.
func After(s State) []present.Step {
	if s.ExitCode == migration.ExitLocked {
		return present.One("Another run holds the lock. "+present.Wait+" See how far it is:", s.Line("status"))
	}
	switch s.Command {
	case "plan":
		return s.afterPlan()
	case "run":
		return s.afterRun()
	case "undo":
		return present.Next(s.general())
	case "verify":
		return s.afterVerify()
	case "check":
		return s.afterCheck()
	default:
		return s.afterStatus()
	}
}

// general is what the next step of any migration depends on.
func (s State) general() present.State {
	selection := s.selection()
	if s.Command == "undo" && len(s.Jobs) == 1 && len(s.Phases)+len(s.Components) == 0 {
		selection = s.Jobs
	}
	return present.State{
		Caller: s.Caller, Command: s.Command, Selection: selection, ExitCode: s.ExitCode, Changes: s.Changes, Findings: s.Findings, Unready: s.Unready,
	}
}

func (s State) afterPlan() []present.Step {
	switch {
	case s.ExitCode != migration.ExitOK || s.has(migration.Error):
	case s.Changes > 0 && s.whole() && s.waitsForSwitch():
		return present.One("Make these changes:", s.WorkLine("run", "--phase=pre"))
	case s.Changes > 0:
	case s.Namespace != "":
		return s.others()
	case s.waitsForSwitch():
		return s.upgrade()
	case s.has(migration.Deferred):
	default:
		return present.One("Nothing is left to change. Check the result:", s.Line("verify"))
	}
	return present.Next(s.general())
}

func (s State) afterRun() []present.Step {
	steps := present.Next(s.general())
	switch {
	case s.ExitCode > migration.ExitSignal || s.ExitCode == migration.ExitTimedOut:
	case s.ExitCode != migration.ExitOK && s.Unready != nil:
		if what, command := s.leaveOut(); command != "" {
			at := len(steps)
			if s.Changes > 0 {
				at-- // before the last way out
			}
			steps = slices.Insert(steps, at, present.Step{Note: fmt.Sprintf("Or leave %s out, and run again:", what), Command: command})
		}
	case s.ExitCode != migration.ExitOK:
	case s.Namespace != "":
		return s.others()
	case s.waitsForSwitch():
		return s.upgrade()
	case s.has(migration.Deferred):
	case len(s.Phases) == 1 && s.Phases[0] == "pre" && len(s.Jobs)+len(s.Components) == 0 && s.Changes > 0:
		return s.upgrade()
	default:
		return present.One("Check the result:", s.Line("verify"))
	}
	return steps
}

func (s State) afterCheck() []present.Step {
	switch {
	case s.found("permission-missing"):
		role := present.Step{Note: "An administrator applies the Role that this prints:", Command: s.Line("check", "--role")}
		return []present.Step{role, {Note: "Then check again:", Command: s.WorkLine("check")}}
	case s.found("run-running"):
		return present.One("Another run is working. "+present.Wait+" Then:", s.WorkLine("check"))
	case s.has(migration.Error):
		return s.general().Fix("Then check again:", s.WorkLine("check"))
	case s.found("run-open"):
		return present.One("An interrupted run is open. Continue it:", s.WorkLine("run"))
	default:
		return present.One("A run can begin. See its changes:", s.WorkLine("plan"))
	}
}

// Findings of verify that say how far the migration is.
var (
	ofPhasePre  = []string{"httpsource-missing", "link-missing", "broker-missing", "subscription-without-trigger"}
	ofPhasePost = []string{"subscription-left", "eventbus-up", "activation-finalizer"}
	notSwitched = []string{"eventservice-not-switched"}
)

func (s State) afterVerify() []present.Step {
	verify := []string{"verify"}
	if s.Namespace != "" {
		verify = append(verify, "--namespace="+s.Namespace)
	}
	switch {
	case s.found("run-running"):
		return present.One("Another run is working. "+present.Wait+" Then:", s.Line(verify...))
	case s.found("run-open"):
		return present.One("An interrupted run is open. Continue it:", s.WorkLine("run"))
	case s.mayChange() && s.found(ofPhasePre...):
		return present.One("The migration is not finished. See what is left:", s.Line("plan"))
	case s.found(notSwitched...):
		return s.upgrade()
	case s.mayChange() && s.found(ofPhasePost...):
		return present.One("The migration is not finished. Continue it:", s.WorkLine("run"))
	case s.Plan != nil && s.mayChange() && s.has(migration.Error):
		return present.One("A run would change something. See what:", s.Line("plan"))
	case s.onlyReports():
		return present.One("Nothing is left to change. A run that says so replaces the report of the one that failed:", s.WorkLine("run"))
	case s.has(migration.Error):
		return s.general().Fix("Then check again:", s.Line(verify...))
	case s.found("run-deferred") && s.mayChange():
		return present.One("Some work is deferred. Do it now:", s.WorkLine("run"))
	case s.found("run-deferred") && s.Plan.has(migration.Deferred):
		return present.One("Some work is deferred. See what it waits for:", s.Line("plan"))
	case s.Namespace != "":
		return present.One("Check the whole cluster:", s.Line("verify"))
	default:
		return present.One("The migration is finished.", "")
	}
}

// mayChange says whether a run would change something now, as far as that is known.
func (s State) mayChange() bool {
	return s.Plan == nil || s.Plan.Changes > 0 || s.Plan.ExitCode != migration.ExitOK || s.Plan.has(migration.Error)
}

// onlyReports says that the only errors are reports of runs that failed, and that their jobs have
// nothing left to do.
func (s State) onlyReports() bool {
	return s.Plan != nil && !s.mayChange() && !s.Plan.has(migration.Deferred) && s.has(migration.Error) &&
		!slices.ContainsFunc(s.Findings, func(f present.Finding) bool { return f.Severity == migration.Error && f.ID != "run-failed" })
}

func (s State) afterStatus() []present.Step {
	switch {
	case s.Running:
		return present.One("A run is working. "+present.Wait+" Then:", s.Line("status"))
	case s.Open:
		return present.One("A run was interrupted. Continue it:", s.WorkLine("run"))
	case !s.Reported:
		return present.One("No job has run. See what a run would change:", s.Line("plan"))
	case s.has(migration.Error):
		return s.general().Fix("Then see what is left:", s.Line("plan"))
	case s.waitsForSwitch():
		return s.upgrade()
	case s.has(migration.Deferred):
		return s.general().Help("Then:", s.WorkLine("run"))
	default:
		return present.One("Check the result:", s.Line("verify"))
	}
}

func (s State) upgrade() []present.Step {
	return present.One("Now upgrade application-connector. Then:", s.WorkLine("run", "--phase=post"))
}

// others is the step after a command that was limited to a namespace: much may be left elsewhere.
func (s State) others() []present.Step {
	return present.One("Only namespace "+s.Namespace+" was part of this. See what is left in the whole cluster:", s.Line("plan"))
}

// whole says whether all jobs are selected.
func (s State) whole() bool {
	return len(s.Phases)+len(s.Components)+len(s.Jobs) == 0 && s.Namespace == ""
}

func (s State) selection() []string {
	var words []string
	for _, list := range []struct {
		flag   string
		values []string
	}{{"phase", s.Phases}, {"component", s.Components}, {"job", s.Jobs}} {
		if len(list.values) > 0 {
			words = append(words, "--"+list.flag+"="+strings.Join(list.values, ","))
		}
	}
	if s.Namespace != "" {
		words = append(words, "--namespace="+s.Namespace)
	}
	return words
}

func (s State) has(severity migration.Severity) bool {
	return present.Has(s.Findings, severity)
}

func (s State) found(ids ...string) bool {
	return present.Found(s.Findings, ids...)
}

// ofSwitch are the findings about work that is deferred until the upgrade of
// application-connector lets event-services post to the mesh.
var ofSwitch = []string{"waits-for-eventservice-missing", "waits-for-eventservice-not-switched", "event-service-uses-bus"}

func (s State) waitsForSwitch() bool { return s.found(ofSwitch...) }

// leaveOut labels the object by which jobs decide: the Application of an HTTPSource, the
// namespace of a Trigger or a Broker, otherwise the object itself.
func (s State) leaveOut() (what, command string) {
	ch := s.Unready
	kind, group, namespace, name := ch.Kind, "", ch.Namespace, ch.Name
	if g, _, found := strings.Cut(ch.APIVersion, "/"); found {
		group = g
	}
	switch kind {
	case kyma.HTTPSource.Kind:
		kind, group, namespace = kyma.Application.Kind, kyma.Application.Group, ""
	case kyma.ServiceInstance.Kind:
	case knative.Trigger.Kind, knative.Broker.Kind, "Namespace":
		if namespace != "" {
			name = namespace
		}
		kind, group, namespace = "Namespace", "", ""
	default:
		return "", "" // what it belongs to is not known here
	}
	resource := strings.ToLower(kind)
	if group != "" {
		resource += "." + group
	}
	words := []string{"kubectl", "label", resource, name, kyma.OptOutLabel + "=true"}
	if namespace != "" {
		words = append(words, "--namespace="+namespace)
	}
	return kind + " " + name, s.Complete(migration.CommandLine(words...))
}
