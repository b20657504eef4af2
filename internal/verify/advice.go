package verify

import (
	"strings"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// advice is what to do about one finding: a sentence, and at most one command. In the command,
// {namespace} and {name} are those of the finding's object.
type advice struct{ note, command string }

// Commands that several findings have.
const (
	sourcesLog  = "kubectl -n kyma-system logs deployment/event-sources-controller-manager"
	brokerLog   = "kubectl -n kyma-integration logs deployment/application-broker"
	operatorLog = "kubectl -n kyma-integration logs statefulset/application-operator"
	channel     = "kubectl -n {namespace} describe channels.messaging.knative.dev {name}"
	aPod        = "kubectl -n {namespace} describe pod {name}"
	instance    = "kubectl -n {namespace} describe serviceinstances.servicecatalog.k8s.io {name}"
	link        = "kubectl -n {namespace} describe subscriptions.messaging.knative.dev {name}"
	source      = "kubectl -n {namespace} describe httpsources.sources.kyma-project.io {name}"
	trigger     = "kubectl -n {namespace} describe triggers.eventing.knative.dev {name}"
	scaleDown   = "eventmesh-migrate run --job=eventbus-scaledown"
	toTriggers  = "eventmesh-migrate run --job=trigger-sync"
)

// advices has the command of each entry of the catalog. An entry that is not here has no
// command, and its note is its hint.
var advices = map[string]advice{
	"controller-down":              {"Nothing repairs itself while it is down. Scale it up.", "kubectl -n {namespace} scale deployment {name} --replicas=1"},
	"release-failed":               {"Fix the error first. Then restart application-operator.", "kubectl -n kyma-integration rollout restart statefulset application-operator"},
	"httpsource-missing":           {"", "eventmesh-migrate run --job=httpsource-sync"},
	"httpsource-terminating":       {"Wait until it is gone. If it stays, check the owner of its finalizer.", source},
	"httpsource-foreign":           {"Rename or delete the HTTPSource that has the name. Then run httpsource-sync again.", source},
	"httpsource-not-ready":         {"", sourcesLog},
	"channel-missing":              {"The webhook of Knative Eventing may refuse it.", sourcesLog},
	"channel-not-ready":            {"The usual cause is NATS Streaming or its provisioner.", channel},
	"channel-no-address":           {"The usual cause is NATS Streaming or its provisioner.", channel},
	"adapter-missing":              {"", sourcesLog},
	"adapter-without-channel":      {"Events are lost.", sourcesLog},
	"adapter-not-ready":            {"If an old revision hangs, delete the Service.", "kubectl -n {namespace} describe services.serving.knative.dev {name}"},
	"eventservice-missing":         {"Check why application-operator does not install the release.", operatorLog},
	"eventservice-not-switched":    {"Upgrade application-connector. Then application-operator upgrades the release.", operatorLog},
	"eventservice-former-pod":      {"Check for a finalizer or a dead node.", aPod},
	"activation-terminating":       {"Remove the finalizer of the Event Bus.", scaleDown},
	"activation-finalizer":         {"Its controller does not run. Remove the finalizer.", scaleDown},
	"link-missing":                 {"serviceinstance-recreate creates the links of namespaces that are older than Kyma 1.9.", brokerLog},
	"link-twice":                   {"Events arrive twice. Delete all but the oldest of these Knative Subscriptions.", "kubectl -n kyma-integration get subscriptions.messaging.knative.dev --sort-by=.metadata.creationTimestamp"},
	"link-not-ready":               {"", link},
	"link-elsewhere":               {"Delete it. application-broker recreates it with the right target.", "kubectl -n {namespace} delete subscriptions.messaging.knative.dev {name}"},
	"broker-missing":               {"The label lets Knative Eventing create the Broker.", "kubectl label namespace {name} knative-eventing-injection=enabled"},
	"broker-not-ready":             {"Then check its ingress and filter Deployments.", "kubectl -n {namespace} describe brokers.eventing.knative.dev {name}"},
	"trigger-not-ready":            {"", trigger},
	"subscription-left":            {"The report names what it waits for.", toTriggers},
	"subscription-without-trigger": {"The report names why no Trigger is created.", toTriggers},
	"subscription-terminating":     {"Remove the finalizer of the Event Bus.", toTriggers},
	"eventbus-up":                  {"The report names what still uses it.", scaleDown},
	"eventbus-pods":                {"Check for a finalizer or a dead node.", aPod},
	"eventbus-autoscaler":          {"Delete it. It would scale the Event Bus up again.", "kubectl -n {namespace} delete horizontalpodautoscalers {name}"},
	"eventbus-leftovers":           {"Nothing to do before Kyma 1.12. Then delete them.", "eventmesh-migrate run --job=eventbus-purge --eventbus-purge.yes"},
	"stock-migration":              {"Stop Kyma's own migration. Then remove the sub-chart (migration-guide-1.11.md).", "kubectl -n {namespace} delete job {name}"},
	"namespace-terminating":        {"Remove the finalizer of its EventActivations.", scaleDown},
	"instance-failed":              {"Delete it and recreate it, with its bindings. application-broker does not retry.", instance},
	"instance-not-ready":           {"", brokerLog},
	"instance-stuck":               {"Then remove its finalizer.", brokerLog},
	"binding-not-ready":            {"Its workload has no credentials.", "kubectl -n {namespace} describe servicebindings.servicecatalog.k8s.io {name}"},
	"run-open":                     {"Finish it, or undo it.", "eventmesh-migrate run"},
	"run-running":                  {"Wait until it ends.", "eventmesh-migrate status"},
	"run-failed":                   {"Fix the error. Then run again.", "eventmesh-migrate status"},
	"run-deferred":                 {"Wait for what the report names. Then run again.", "eventmesh-migrate status"},
	"accounts-left":                {"The next upgrade that succeeds deletes them. Without an upgrade, delete them.", CleanUp},
}

// Advice returns what to do about a finding on an object. A command that needs a name which
// the finding does not have is left out.
func (e Entry) Advice(object string) (note, command string) {
	a, ok := advices[e.ID]
	if !ok {
		return sentence(e.Hint), ""
	}
	_, path, _ := strings.Cut(object, " ")
	namespace, name, found := strings.Cut(path, "/")
	if !found {
		namespace, name = "", path
	}
	command = a.command
	for key, value := range map[string]string{"{namespace}": namespace, "{name}": name} {
		if !strings.Contains(command, key) {
			continue
		}
		if value == "" {
			return sentence(e.Hint), ""
		}
		command = strings.ReplaceAll(command, key, migration.ShellQuote(value))
	}
	return a.note, command
}

// sentence has a capital letter and a full stop.
func sentence(hint string) string {
	if hint == "" {
		return ""
	}
	return strings.ToUpper(hint[:1]) + strings.TrimRight(hint[1:], ".") + "."
}
