// Package verify finds what is wrong with a cluster whose migration is supposed to be
// finished. It only reads: Check is a function of what inventory, the engine and
// ReadAccountsLeft have read.
package verify

import (
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Entry is one thing that can be wrong with a finished migration.
type Entry struct {
	// ID names it, here and in the runbook.
	ID string
	// Severity is error if events are or will be lost, or the migration is not
	// finished; warning if a person should know it.
	Severity migration.Severity
	// Note is a sentence that says what to do. Command is one command, in which {namespace} and
	// {name} are those of the object. Both are empty if eventpath.Answer has them.
	Note, Command string
}

// Page is the place in the runbook.
func (e Entry) Page() string { return "docs/migration/runbook.md#verify-" + e.ID }

// Commands that several findings have.
const (
	brokerLog  = "kubectl -n kyma-integration logs deployment/application-broker"
	channel    = "kubectl -n {namespace} describe channels.messaging.knative.dev {name}"
	aPod       = "kubectl -n {namespace} describe pod {name}"
	instance   = "kubectl -n {namespace} describe serviceinstances.servicecatalog.k8s.io {name}"
	trigger    = "kubectl -n {namespace} describe triggers.eventing.knative.dev {name}"
	scaleDown  = "eventmesh-migrate run --job=eventbus-scaledown"
	toTriggers = "eventmesh-migrate run --job=trigger-sync"
)

// Advice is what to do about a finding on an object. A command that needs a name which the
// finding does not have is left out.
func (e Entry) Advice(object string) migration.Advice {
	_, path, _ := strings.Cut(object, " ")
	namespace, name, found := strings.Cut(path, "/")
	if !found {
		namespace, name = "", path
	}
	advice := migration.Advice{Note: e.Note, Command: e.Command}
	for key, value := range map[string]string{"{namespace}": namespace, "{name}": name} {
		switch {
		case !strings.Contains(advice.Command, key):
		case value == "":
			advice.Command = ""
		default:
			advice.Command = strings.ReplaceAll(advice.Command, key, migration.ShellQuote(value))
		}
	}
	return advice
}

// Catalog returns everything that Check looks for.
func Catalog() []Entry {
	const e, w = migration.Error, migration.Warning
	return []Entry{
		{"kind-missing", e, "Install the component that has the kind, then run the hooks of the upgrade again.", ""},
		{"controller-down", e, "Nothing repairs itself while it is down. Scale it up.", "kubectl -n {namespace} scale deployment {name} --replicas=1"},
		{"application-name", e, "Create the Application under another name, of at most 63 lower-case letters, digits and dashes, with a letter first.", ""},
		{"release-failed", e, "Fix the error first. Then restart application-operator.", "kubectl -n kyma-integration rollout restart statefulset application-operator"},
		{"skipped-event-service", e, "Set spec.skipInstallation to false, or delete the release.", "kubectl edit applications.applicationconnector.kyma-project.io {name}"},
		{ID: "httpsource-missing", Severity: e},
		{ID: "httpsource-terminating", Severity: e},
		{ID: "httpsource-foreign", Severity: e},
		{ID: "httpsource-not-ready", Severity: e},
		{ID: "channel-missing", Severity: e},
		{ID: "channel-former", Severity: e},
		{"channel-foreign", e, "The controller of HTTPSources overwrites it. If nothing uses it, rename or delete it.", channel},
		{ID: "channel-not-ready", Severity: e},
		{ID: "channel-no-address", Severity: e},
		{"channel-unlabelled", e, "Delete the Channel. Its controller recreates it with the label application-name, by which application-broker finds it.", "kubectl -n {namespace} delete channels.messaging.knative.dev {name}"},
		{ID: "adapter-missing", Severity: e},
		{ID: "adapter-without-channel", Severity: e},
		{ID: "adapter-not-ready", Severity: e},
		{"eventservice-missing", e, eventpath.UpgradeConnector, "kubectl -n kyma-integration logs statefulset/application-operator"},
		{ID: "eventservice-not-switched", Severity: e},
		{ID: "eventservice-rollout", Severity: e},
		{ID: "eventservice-former-pod", Severity: e},
		{"activation-terminating", e, "Remove the finalizer of the Event Bus.", scaleDown},
		{"activation-finalizer", e, "Its controller does not run. Remove the finalizer.", scaleDown},
		{"link-missing", e, "application-broker creates it. serviceinstance-recreate creates those of namespaces that are older than Kyma 1.9.", brokerLog},
		{ID: "link-twice", Severity: e},
		{ID: "link-not-ready", Severity: e},
		{ID: "link-elsewhere", Severity: e},
		{"broker-missing", e, "The label lets Knative Eventing create the Broker.", "kubectl label namespace {name} knative-eventing-injection=enabled"},
		{"broker-not-ready", e, "Its conditions say why. Check its ingress and filter Deployments too.", "kubectl -n {namespace} describe brokers.eventing.knative.dev {name}"},
		{"trigger-not-ready", e, "Its conditions say why.", trigger},
		{"trigger-stuck", e, "Scale Deployment knative-eventing/eventing-controller to 0. Remove the finalizers of the Knative Subscription. Scale to 1. To see it:", "kubectl -n {namespace} get subscriptions.messaging.knative.dev -l eventing.knative.dev/trigger={name}"},
		{"trigger-without-broker", e, "Create the Broker. Or recreate the Trigger with the right spec.broker, which cannot be changed.", trigger},
		{"trigger-without-source", w, "No Application has that name. Correct the filter, or delete the Trigger.", trigger},
		{"trigger-without-link", e, "The events of the Application do not reach the namespace. Create a ServiceInstance of it there. To see its classes:", "kubectl -n {namespace} get serviceclasses.servicecatalog.k8s.io"},
		{"trigger-twice", e, "Each event arrives once for each of them. Delete all but one of them.", "kubectl -n {namespace} get triggers.eventing.knative.dev"},
		{"subscription-left", e, "The report names what it waits for.", toTriggers},
		{"subscription-without-trigger", e, "The report names why no Trigger is created.", toTriggers},
		{"subscription-without-source", e, "No Application posts its events. Change the publisher, and delete the Subscription. Or leave it out:", "kubectl -n {namespace} label subscriptions.eventing.kyma-project.io {name} " + kyma.OptOutLabel + "=true"},
		{"subscription-terminating", e, "Remove the finalizer of the Event Bus.", toTriggers},
		{"eventbus-up", e, "The report names what still uses it.", scaleDown},
		{"eventbus-pods", e, "Check for a finalizer or a dead node.", aPod},
		{"eventbus-autoscaler", e, "Delete it. It would scale the Event Bus up again.", "kubectl -n {namespace} delete horizontalpodautoscalers {name}"},
		{"eventbus-leftovers", w, "Nothing to do before Kyma 1.12. Then delete them.", "eventmesh-migrate run --job=eventbus-purge --eventbus-purge.yes"},
		{"eventbus-leaked", w, "No event is lost. The next run of trigger-sync deletes it. To delete it now:", "kubectl -n {namespace} delete channels.messaging.knative.dev {name}"},
		{"stock-migration", e, "Remove the sub-chart mesh-namespaces-migration from the event-bus chart (migration-guide-1.11.md). Then stop Kyma's own migration:", "kubectl -n {namespace} delete job {name}"},
		{"namespace-terminating", e, "Remove the finalizer of its EventActivations.", scaleDown},
		{"instance-failed", e, "Delete it and recreate it, with its bindings. application-broker does not retry.", instance},
		{"instance-not-ready", e, "The log of application-broker says why.", brokerLog},
		{"instance-stuck", e, "The log of application-broker says why. Remove the finalizer when the cause is fixed.", brokerLog},
		{"binding-not-ready", e, "Its workload has no credentials.", "kubectl -n {namespace} describe servicebindings.servicecatalog.k8s.io {name}"},
		{"usage-without-binding", e, "Its workload has no credentials. Recreate the ServiceBinding.", "kubectl -n {namespace} describe servicebindingusages.servicecatalog.kyma-project.io {name}"},
		{"run-open", e, "Finish it, or undo it. To finish it:", "eventmesh-migrate run"},
		{"run-running", w, "Wait until it ends.", "eventmesh-migrate status"},
		{"run-failed", e, "Fix the error. Then run the job again. To see the error:", "eventmesh-migrate status"},
		{"run-deferred", w, "Wait for what the report names. Then run the job again.", "eventmesh-migrate status"},
		{"lock-abandoned", w, "There is nothing to do. The next run takes the lock.", ""},
		{"accounts-left", w, "The next upgrade that succeeds deletes them. If no upgrade follows:", CleanUp},
	}
}

// Finding is one entry of the catalog found on one object.
type Finding struct {
	ID        string             `json:"id"`
	Severity  migration.Severity `json:"severity"`
	Object    string             `json:"object,omitempty"`
	Namespace string             `json:"namespace,omitempty"`
	// Group is that of the object's kind.
	Group   string `json:"group,omitempty"`
	Problem string `json:"problem"`
	// Command is one command, complete, to paste; "" if there is none. Note is a sentence.
	Command string `json:"command,omitempty"`
	Note    string `json:"note,omitempty"`
	// Hint is both as one text.
	Hint string `json:"hint"`
	Page string `json:"page"`
}
