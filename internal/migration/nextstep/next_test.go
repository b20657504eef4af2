package nextstep

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestAfter(t *testing.T) {
	bus := present.Finding{Severity: migration.Deferred, ID: "waits-for-eventservice-not-switched", Object: "Subscription shop/a", Problem: "not deleted yet"}
	later := present.Finding{Severity: migration.Deferred, Problem: "it is being deleted already", Note: "Wait until it is gone."}
	bad := present.Finding{Severity: migration.Error, ID: "trigger-not-ready", Object: "Trigger shop/a", Problem: "is not ready"}
	seen := present.Finding{
		Severity: migration.Error, ID: "broker-not-ready", Object: "Broker shop/default", Problem: "is not ready",
		Command: "kubectl -n shop describe brokers.eventing.knative.dev default", Note: "Its conditions say why.",
	}
	ours := present.Finding{Severity: migration.Error, ID: "subscription-terminating", Object: "Subscription shop/a", Problem: "is being deleted", Command: "eventmesh-migrate run --job=trigger-sync"}
	id := func(id string) []present.Finding { return []present.Finding{{Severity: migration.Error, ID: id}} }
	source := change(migration.Create, "HTTPSource", "kyma-integration", "inventory", migration.ChangeFailed)
	awaited := change(migration.Await, "EventActivation", "shop", "crm", migration.ChangeFailed)
	instance := migration.ChangeReport{Verb: migration.Recreate, Kind: "ServiceInstance", APIVersion: "servicecatalog.k8s.io/v1beta1", Namespace: "shop", Name: "crm"}
	const upgrade = "Now upgrade application-connector. Then:"
	for _, tc := range []struct {
		reason string
		state  State
		want   []present.Step
	}{
		{"a plan before the upgrade", State{Command: "plan", Changes: 3, Findings: []present.Finding{bus}}, present.One("Make these changes:", "eventmesh-migrate run --phase=pre --context=prod")},
		{"a plan after the upgrade", State{Command: "plan", Changes: 3}, present.One("Make these changes:", "eventmesh-migrate run --context=prod")},
		{"a plan of one job", State{Command: "plan", Changes: 3, Jobs: []string{"trigger-sync"}, Findings: []present.Finding{bus}}, present.One("Make these changes:", "eventmesh-migrate run --job=trigger-sync --context=prod")},
		{"a plan when only the upgrade is missing", State{Command: "plan", Findings: []present.Finding{bus}}, present.One(upgrade, "eventmesh-migrate run --phase=post --context=prod")},
		{"a plan that must wait", State{Command: "plan", Findings: []present.Finding{later}}, present.One("Follow the advice to the deferred work above, it is being deleted already. Wait until it is gone. That takes seconds, unless a finalizer holds it. Then plan again:", "eventmesh-migrate plan --context=prod")},
		{"a plan with an error", State{Command: "plan", Changes: 1, Findings: []present.Finding{bad}}, present.One("Fix the error above, trigger-not-ready (Trigger shop/a). Then plan again:", "eventmesh-migrate plan --context=prod")},
		{"a plan of one namespace", State{Command: "plan", Changes: 3, Jobs: []string{"trigger-sync"}, Namespace: "shop", Findings: []present.Finding{bus}}, present.One("Make these changes:", "eventmesh-migrate run --job=trigger-sync --namespace=shop --context=prod")},
		{"nothing to plan in one namespace", State{Command: "plan", Namespace: "shop"}, present.One("Only namespace shop was part of this. See what is left in the whole cluster:", "eventmesh-migrate plan --context=prod")},
		{"a run of one namespace", State{Command: "run", Namespace: "shop", Findings: []present.Finding{bus}}, present.One("Only namespace shop was part of this. See what is left in the whole cluster:", "eventmesh-migrate plan --context=prod")},
		{"a run of one namespace that failed", State{Command: "run", Namespace: "shop", ExitCode: 1, Findings: []present.Finding{bad}}, present.One("Fix the error above, trigger-not-ready (Trigger shop/a). Then run again:", "eventmesh-migrate run --namespace=shop --context=prod")},
		{"nothing to plan", State{Command: "plan"}, present.One("Nothing is left to change. Check the result:", "eventmesh-migrate verify --context=prod")},

		{"the first phase when nothing is left of it", State{Command: "run", Phases: []string{"pre"}}, present.One("Check the result:", "eventmesh-migrate verify --context=prod")},
		{"the first phase", State{Command: "run", Phases: []string{"pre"}, Changes: 2}, present.One(upgrade, "eventmesh-migrate run --phase=post --context=prod")},
		{"all phases before the upgrade", State{Command: "run", Findings: []present.Finding{bus}}, present.One(upgrade, "eventmesh-migrate run --phase=post --context=prod")},
		{"the Event Bus is all that waits", State{Command: "run", Findings: []present.Finding{{Severity: migration.Deferred, ID: "event-service-uses-bus"}}}, present.One(upgrade, "eventmesh-migrate run --phase=post --context=prod")},
		{"no upgrade would help", State{Command: "run", Phases: []string{"post"}, Findings: []present.Finding{{Severity: migration.Deferred, ID: "event-service-not-upgraded", Problem: "does not carry --eventMeshURL"}}}, present.One("Follow the advice to the deferred work above, event-service-not-upgraded. Then run again:", "eventmesh-migrate run --phase=post --context=prod")},
		{"the second phase", State{Command: "run", Phases: []string{"post"}}, present.One("Check the result:", "eventmesh-migrate verify --context=prod")},
		{"a run that must wait", State{Command: "run", Phases: []string{"post"}, Findings: []present.Finding{later}}, present.One("Follow the advice to the deferred work above, it is being deleted already. Wait until it is gone. That takes seconds, unless a finalizer holds it. Then run again:", "eventmesh-migrate run --phase=post --context=prod")},
		{"a run that failed", State{Command: "run", Phases: []string{"pre"}, ExitCode: 1, Findings: []present.Finding{bad}}, present.One("Fix the error above, trigger-not-ready (Trigger shop/a). Then run again:", "eventmesh-migrate run --phase=pre --context=prod")},
		{"a locked run", State{Command: "run", ExitCode: migration.ExitLocked}, present.One("Another run holds the lock. "+present.Wait+" See how far it is:", "eventmesh-migrate status --context=prod")},
		{"a run out of time", State{Command: "run", ExitCode: migration.ExitTimedOut}, present.One("The time limit of 15m was reached. Continue with a longer one:", "eventmesh-migrate run --timeout=30m --context=prod")},
		{"a run out of time with an error", State{Command: "run", ExitCode: migration.ExitTimedOut, Findings: []present.Finding{bad}}, present.One("Fix the error above, trigger-not-ready (Trigger shop/a). Then continue, with a longer time limit:", "eventmesh-migrate run --timeout=30m --context=prod")},
		{"a command that changes something has its note", State{Command: "run", Findings: []present.Finding{{Severity: migration.Deferred, ID: "odd", Object: "Thing shop/a", Note: "Correct it, or leave it out:", Command: "kubectl -n shop label thing a skip=true"}}}, []present.Step{
			{Note: "Follow the advice to the deferred work above, odd (Thing shop/a). Correct it, or leave it out:", Command: "kubectl -n shop label thing a skip=true --context=prod"},
			{Note: "Then run again:", Command: "eventmesh-migrate run --context=prod"},
		}},
		{"an error of which a command tells more", State{Command: "run", ExitCode: 1, Findings: []present.Finding{bad, seen}}, []present.Step{
			{Note: "Fix the errors above, first broker-not-ready (Broker shop/default):", Command: "kubectl -n shop describe brokers.eventing.knative.dev default --context=prod"},
			{Note: "Then run again:", Command: "eventmesh-migrate run --context=prod"},
		}},
		{"errors that no finding tells", State{Command: "run", ExitCode: 1}, []present.Step{
			{Note: "See what to do at this exit code:", Command: "eventmesh-migrate explain exit-1"},
			{Note: "Then run again:", Command: "eventmesh-migrate run --context=prod"},
		}},
		{"a signal", State{Command: "run", ExitCode: 130}, present.One("The run was interrupted. Continue it:", "eventmesh-migrate run --context=prod")},
		{"an HTTPSource that was not ready", State{Command: "run", ExitCode: 1, Changes: 3, Unready: &source, Findings: []present.Finding{seen}}, []present.Step{
			{Note: "Fix the error above, broker-not-ready (Broker shop/default):", Command: "kubectl -n shop describe brokers.eventing.knative.dev default --context=prod"},
			{Note: "Then run again:", Command: "eventmesh-migrate run --context=prod"},
			{Note: "Or leave Application inventory out, and run again:", Command: "kubectl label application.applicationconnector.kyma-project.io inventory eventmesh-migration.kyma-project.io/skip=true --context=prod"},
			{Note: "Or do not roll back what is ready:", Command: "eventmesh-migrate run --on-failure=leave --context=prod"},
		}},
		{"an object that only had to be awaited", State{Command: "run", ExitCode: 1, Unready: &awaited, Findings: []present.Finding{seen}}, []present.Step{
			{Note: "Fix the error above, broker-not-ready (Broker shop/default):", Command: "kubectl -n shop describe brokers.eventing.knative.dev default --context=prod"},
			{Note: "Then run again:", Command: "eventmesh-migrate run --context=prod"},
		}},
		{"a ServiceInstance that was not ready", State{Command: "run", ExitCode: 1, Changes: 3, Unready: &instance, Findings: []present.Finding{seen}}, []present.Step{
			{Note: "Fix the error above, broker-not-ready (Broker shop/default):", Command: "kubectl -n shop describe brokers.eventing.knative.dev default --context=prod"},
			{Note: "Then run again:", Command: "eventmesh-migrate run --context=prod"},
			{Note: "Or leave ServiceInstance crm out, and run again:", Command: "kubectl label serviceinstance.servicecatalog.k8s.io crm eventmesh-migration.kyma-project.io/skip=true --namespace=shop --context=prod"},
			{Note: "Or do not roll back what is ready:", Command: "eventmesh-migrate run --on-failure=leave --context=prod"},
		}},

		{
			"a run that ended an earlier rollback", State{Command: "run", ExitCode: 3, Findings: []present.Finding{{Severity: migration.Warning, ID: "protected"}, {Severity: migration.Warning, ID: "restored-unproven"}}},
			present.One("No error is left to fix. What is protected stays, and the next run uses it. Run again:", "eventmesh-migrate run --context=prod"),
		},
		{
			"a rollback that could not restore all", State{Command: "run", ExitCode: 3, Findings: []present.Finding{{Severity: migration.Warning, ID: "protected"}, bad}},
			present.One("Fix the error above, trigger-not-ready (Trigger shop/a). Then run again:", "eventmesh-migrate run --context=prod"),
		},
		{
			"an undo that left what is protected", State{Command: "undo", Jobs: []string{"trigger-sync"}, ExitCode: 3, Findings: []present.Finding{{Severity: migration.Warning, ID: "protected"}}},
			present.One("No error is left to fix. The warnings say why objects stay. See what a run would change now:", "eventmesh-migrate plan --context=prod"),
		},

		{"an undo", State{Command: "undo", Jobs: []string{"trigger-sync"}}, present.One("See what a run would change now:", "eventmesh-migrate plan --context=prod")},
		{"an undo that failed", State{Command: "undo", Jobs: []string{"trigger-sync"}, ExitCode: 3, Findings: []present.Finding{bad}}, present.One("Fix the error above, trigger-not-ready (Trigger shop/a). Then undo again:", "eventmesh-migrate undo trigger-sync --context=prod")},

		{"an undo of a phase that failed", State{Command: "undo", Phases: []string{"post"}, ExitCode: 3, Findings: []present.Finding{bad}}, present.One("Fix the error above, trigger-not-ready (Trigger shop/a). Then undo again:", "eventmesh-migrate undo --phase=post --context=prod")},

		{"a good cluster", State{Command: "check"}, present.One("A run can begin. See its changes:", "eventmesh-migrate plan --context=prod")},
		{"permissions are missing, whatever else is", State{Command: "check", ExitCode: 6, Findings: append([]present.Finding{bad}, id("permission-missing")...)}, []present.Step{
			{Note: "An administrator applies the Role that this prints:", Command: "eventmesh-migrate check --role --context=prod"},
			{Note: "Then check again:", Command: "eventmesh-migrate check --context=prod"},
		}},
		{"another run works, and its objects are not ready", State{Command: "check", ExitCode: 6, Findings: append([]present.Finding{bad}, id("run-running")...)}, present.One("Another run is working. "+present.Wait+" Then:", "eventmesh-migrate check --context=prod")},
		{"an error comes before an open run", State{Command: "check", ExitCode: 6, Findings: append([]present.Finding{bad}, id("run-open")...)}, present.One("Fix the errors above, first trigger-not-ready (Trigger shop/a). Then check again:", "eventmesh-migrate check --context=prod")},
		{"an open run", State{Command: "check", Findings: []present.Finding{{Severity: migration.Warning, ID: "run-open"}}}, present.One("An interrupted run is open. Continue it:", "eventmesh-migrate run --context=prod")},

		{"a migration that is finished", State{Command: "verify"}, present.One("The migration is finished.", "")},
		{"one namespace is right", State{Command: "verify", Namespace: "shop"}, present.One("Check the whole cluster:", "eventmesh-migrate verify --context=prod")},
		{"a migration that has not begun", State{Command: "verify", Findings: append(id("httpsource-missing"), id("eventservice-not-switched")...)}, present.One("The migration is not finished. See what is left:", "eventmesh-migrate plan --context=prod")},
		{"before the upgrade", State{Command: "verify", Findings: append(id("subscription-left"), id("eventservice-not-switched")...)}, present.One(upgrade, "eventmesh-migrate run --phase=post --context=prod")},
		{"after the upgrade", State{Command: "verify", Findings: id("subscription-left")}, present.One("The migration is not finished. Continue it:", "eventmesh-migrate run --context=prod")},
		{"no run would help", State{Command: "verify", Plan: &State{}, Findings: append(id("link-missing"), seen)}, []present.Step{
			{Note: "Fix the errors above, first broker-not-ready (Broker shop/default):", Command: "kubectl -n shop describe brokers.eventing.knative.dev default --context=prod"},
			{Note: "Then check again:", Command: "eventmesh-migrate verify --context=prod"},
		}},
		{"the command of the only error would change nothing", State{Command: "verify", Plan: &State{}, Findings: []present.Finding{ours}}, present.One("Fix the error above, subscription-terminating (Subscription shop/a). Then check again:", "eventmesh-migrate verify --context=prod")},
		{"a run would change something", State{Command: "verify", Plan: &State{Changes: 1}, Findings: []present.Finding{bad}}, present.One("A run would change something. See what:", "eventmesh-migrate plan --context=prod")},
		{"a plan has an error", State{Command: "verify", Plan: &State{ExitCode: 4}, Findings: id("link-missing")}, present.One("The migration is not finished. See what is left:", "eventmesh-migrate plan --context=prod")},
		{"only the report of a failed run is left", State{Command: "verify", Plan: &State{}, Findings: id("run-failed")}, present.One("Nothing is left to change. A run that says so replaces the report of the one that failed:", "eventmesh-migrate run --context=prod")},
		{"deferred work that can be done", State{Command: "verify", Plan: &State{Changes: 1}, Findings: []present.Finding{{Severity: migration.Warning, ID: "run-deferred"}}}, present.One("Some work is deferred. Do it now:", "eventmesh-migrate run --context=prod")},
		{"deferred work that waits", State{Command: "verify", Plan: &State{Findings: []present.Finding{later}}, Findings: []present.Finding{{Severity: migration.Warning, ID: "run-deferred"}}}, present.One("Some work is deferred. See what it waits for:", "eventmesh-migrate plan --context=prod")},
		{"the report of deferred work that is done", State{Command: "verify", Plan: &State{}, Findings: []present.Finding{{Severity: migration.Warning, ID: "run-deferred"}}}, present.One("The migration is finished.", "")},
		{"something broke", State{Command: "verify", Findings: id("trigger-not-ready")}, present.One("Fix the error above, trigger-not-ready. Then check again:", "eventmesh-migrate verify --context=prod")},
		{"another run works", State{Command: "verify", Findings: append(id("run-running"), id("httpsource-missing")...)}, present.One("Another run is working. "+present.Wait+" Then:", "eventmesh-migrate verify --context=prod")},
		{"a run is open", State{Command: "verify", Findings: id("run-open")}, present.One("An interrupted run is open. Continue it:", "eventmesh-migrate run --context=prod")},

		{"nothing has run", State{Command: "status"}, present.One("No job has run. See what a run would change:", "eventmesh-migrate plan --context=prod")},
		{"a run is working", State{Command: "status", Open: true, Running: true}, present.One("A run is working. "+present.Wait+" Then:", "eventmesh-migrate status --context=prod")},
		{"a run was killed", State{Command: "status", Open: true}, present.One("A run was interrupted. Continue it:", "eventmesh-migrate run --context=prod")},
		{"the state before the upgrade", State{Command: "status", Reported: true, Findings: []present.Finding{bus}}, present.One(upgrade, "eventmesh-migrate run --phase=post --context=prod")},
		{"the state of what has succeeded", State{Command: "status", Reported: true}, present.One("Check the result:", "eventmesh-migrate verify --context=prod")},
	} {
		tc.state.Caller = prod
		tc.state.Timeout = 15 * time.Minute
		if diff := cmp.Diff(tc.want, After(tc.state)); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
