package present

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// State is what the choice of the next command depends on.
type State struct {
	Caller
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
	Findings []Finding
	// Unready is the object that was not ready in time, if a run failed by one.
	Unready *migration.ChangeReport
	// Open: an interrupted run is open. Running: another run works now. Both are for status.
	Open, Running bool
	// Reported: some job has reported before. It is for status.
	Reported bool
}

// Step is a next step. Without a command there is nothing to type.
type Step struct{ Note, Command string }

// Next returns what to do after a command. There is one step, or several of which a person
// chooses one.
func Next(s State) []Step {
	switch s.Command {
	case "plan":
		return s.afterPlan()
	case "run":
		return s.afterRun()
	case "undo":
		return s.afterUndo()
	case "verify":
		return s.afterVerify()
	case "check":
		return s.afterCheck()
	default:
		return s.afterStatus()
	}
}

func (s State) afterPlan() []Step {
	switch {
	case s.ExitCode != migration.ExitOK || s.has(migration.Error):
		return one("Fix the errors above. Then plan again:", s.same())
	case s.Changes > 0 && s.whole() && s.waitsForSwitch():
		return one("Make these changes:", s.work("run", "--phase=pre"))
	case s.Changes > 0:
		return one("Make these changes:", s.work(append([]string{"run"}, s.selection()...)...))
	case s.Namespace != "":
		return s.others()
	case s.waitsForSwitch():
		return s.upgrade()
	case s.has(migration.Deferred):
		return one("Follow the advice to the deferred work above. Then plan again:", s.same())
	default:
		return one("Nothing is left to change. Check the result:", s.line("verify"))
	}
}

func (s State) afterRun() []Step {
	switch {
	case s.ExitCode > migration.ExitSignal:
		return one("The run was interrupted. Continue it:", s.same())
	case s.ExitCode == migration.ExitTimedOut:
		return one("The time limit was reached. Continue:", s.same())
	case s.ExitCode == migration.ExitLocked:
		return one("Another run holds the lock. Wait until it ends. See how far it is:", s.line("status"))
	case s.ExitCode != migration.ExitOK && s.Unready != nil:
		return s.waysOut()
	case s.onlyProtected():
		return one("No error is left to fix. What is protected stays, and the next run uses it. Run again:", s.same())
	case s.ExitCode != migration.ExitOK:
		return one("Fix the errors above. Then run again:", s.same())
	case s.Namespace != "":
		return s.others()
	case s.waitsForSwitch():
		return s.upgrade()
	case s.has(migration.Deferred):
		return one("Follow the advice to the deferred work above. Then run again:", s.same())
	case len(s.Phases) == 1 && s.Phases[0] == "pre" && len(s.Jobs)+len(s.Components) == 0:
		return s.upgrade()
	default:
		return one("Check the result:", s.line("verify"))
	}
}

// onlyProtected says that a rollback or undo has left what is protected, and nothing else: it may
// have ended an earlier run, after which this one has made its changes.
func (s State) onlyProtected() bool {
	return s.ExitCode == migration.ExitPartlyRestored && s.found("protected") && !s.has(migration.Error)
}

func (s State) afterUndo() []Step {
	if s.onlyProtected() {
		return one("No error is left to fix. The warnings say why objects stay. See what a run would change now:", s.line("plan"))
	}
	if s.ExitCode != migration.ExitOK {
		return one("Fix the errors above. Then undo again:", s.same())
	}
	return one("See what a run would change now:", s.line("plan"))
}

func (s State) afterCheck() []Step {
	switch {
	case s.found("permission-missing"):
		return one("Give this Role to an administrator, who applies it. Then check again:", s.line("check", "--role"))
	case s.found("run-running"):
		return one("Another run is working. Wait until it ends. Then:", s.work("check"))
	case s.has(migration.Error):
		return one("Fix the errors above. Then check again:", s.work("check"))
	case s.found("run-open"):
		return one("An interrupted run is open. Continue it:", s.work("run"))
	default:
		return one("A run can begin. See its changes:", s.work("plan"))
	}
}

// Findings of verify that say how far the migration is.
var (
	ofPhasePre  = []string{"httpsource-missing", "link-missing", "broker-missing", "subscription-without-trigger"}
	ofPhasePost = []string{"subscription-left", "eventbus-up", "activation-finalizer"}
	notSwitched = []string{"eventservice-not-switched"}
)

func (s State) afterVerify() []Step {
	verify := []string{"verify"}
	if s.Namespace != "" {
		verify = append(verify, "--namespace="+s.Namespace)
	}
	switch {
	case s.found("run-running"):
		return one("Another run is working. Wait until it ends. Then:", s.line(verify...))
	case s.found("run-open"):
		return one("An interrupted run is open. Continue it:", s.work("run"))
	case s.found(ofPhasePre...):
		return one("The migration is not finished. See what is left:", s.line("plan"))
	case s.found(notSwitched...):
		return s.upgrade()
	case s.found(ofPhasePost...):
		return one("The migration is not finished. Continue it:", s.work("run"))
	case s.has(migration.Error):
		return one("Fix the errors above. Then check again:", s.line(verify...))
	case s.found("run-deferred"):
		return one("Some work is deferred. Do it now:", s.work("run"))
	case s.Namespace != "":
		return one("Check the whole cluster:", s.line("verify"))
	default:
		return one("The migration is finished.", "")
	}
}

func (s State) afterStatus() []Step {
	switch {
	case s.Running:
		return one("A run is working. Wait until it ends. Then:", s.line("status"))
	case s.Open:
		return one("A run was interrupted. Continue it:", s.work("run"))
	case !s.Reported:
		return one("No job has run. See what a run would change:", s.line("plan"))
	case s.has(migration.Error):
		return one("Fix the errors above. Then see what is left:", s.line("plan"))
	case s.waitsForSwitch():
		return s.upgrade()
	case s.has(migration.Deferred):
		return one("Follow the advice to the deferred work above. Then:", s.work("run"))
	default:
		return one("Check the result:", s.line("verify"))
	}
}

func one(note, command string) []Step { return []Step{{note, command}} }

func (s State) upgrade() []Step {
	return one("Now upgrade application-connector. Then:", s.work("run", "--phase=post"))
}

// others is the step after a command that was limited to a namespace: much may be left elsewhere.
func (s State) others() []Step {
	return one("Only namespace "+s.Namespace+" was part of this. See what is left in the whole cluster:", s.line("plan"))
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

// same is the command that has ended.
func (s State) same(more ...string) string {
	words := append([]string{s.Command}, s.selection()...)
	if s.Command == "undo" && len(s.Jobs) == 1 && len(s.Phases)+len(s.Components) == 0 {
		words = append([]string{s.Command}, s.Jobs...)
	}
	return s.work(append(words, more...)...)
}

func (s State) has(severity migration.Severity) bool {
	return slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.Severity == severity })
}

func (s State) found(ids ...string) bool {
	return slices.ContainsFunc(s.Findings, func(f Finding) bool { return slices.Contains(ids, f.ID) })
}

// ofSwitch are the findings about work that is deferred until the upgrade of
// application-connector lets event-services post to the mesh.
var ofSwitch = []string{"waits-for-eventservice-missing", "waits-for-eventservice-not-switched", "event-service-uses-bus"}

func (s State) waitsForSwitch() bool { return s.found(ofSwitch...) }

// waysOut are the steps after an object was not ready in time.
func (s State) waysOut() []Step {
	steps := one("Fix the error above. Then run again:", s.same())
	if what, command := s.leaveOut(); command != "" {
		steps = append(steps, Step{fmt.Sprintf("Or leave %s out, and run again:", what), command})
	}
	return append(steps, Step{"Or do not roll back what is ready:", s.same("--on-failure=leave")})
}

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
