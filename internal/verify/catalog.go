// Package verify finds what is wrong with a cluster whose migration is supposed to be
// finished. It only reads: Check is a function of what inventory, the engine and
// ReadAccountsLeft have read.
package verify

import "github.com/kyma-project/eventmesh-migration/pkg/migration"

// Entry is one thing that can be wrong with a finished migration.
type Entry struct {
	// ID names it, here and in the runbook.
	ID string
	// Severity is error if events are or will be lost, or the migration is not
	// finished; warning if a person should know it.
	Severity migration.Severity
	// Hint is the next action.
	Hint string
}

// Page is the place in the runbook.
func (e Entry) Page() string { return "docs/runbook.md#verify-" + e.ID }

// Catalog returns everything that Check looks for.
func Catalog() []Entry {
	const e, w = migration.Error, migration.Warning
	return []Entry{
		{"kind-missing", e, "install the component that has the kind, then run the hooks of the upgrade again"},
		{"controller-down", e, "scale it up: nothing repairs itself while it is down"},

		{"application-name", e, "create the Application under another name: at most 63 lower-case letters, digits and dashes, with a letter first"},
		{"release-failed", e, "fix the error, then: kubectl -n kyma-integration rollout restart statefulset application-operator"},
		{"skipped-event-service", e, "set spec.skipInstallation to false, or delete the release"},

		{"httpsource-missing", e, "eventmesh-migrate run --job httpsource-sync"},
		{"httpsource-terminating", e, "wait until it is gone; if it stays, check why the owner of its finalizer does not remove that"},
		{"httpsource-foreign", e, "rename or delete the HTTPSource that has the name, then: eventmesh-migrate run --job httpsource-sync"},
		{"httpsource-not-ready", e, "kubectl -n kyma-system logs deployment/event-sources-controller-manager"},
		{"channel-missing", e, "kubectl -n kyma-system logs deployment/event-sources-controller-manager; Knative Eventing's webhook may refuse it"},
		{"channel-former", e, "wait until it is garbage-collected; if it stays, check that kube-controller-manager runs"},
		{"channel-foreign", e, "rename or delete it if nothing uses it: the controller of HTTPSources overwrites it"},
		{"channel-not-ready", e, "kubectl -n kyma-integration describe channel.messaging.knative.dev; usually NATS Streaming or its provisioner"},
		{"channel-no-address", e, "kubectl -n kyma-integration describe channel.messaging.knative.dev; usually NATS Streaming or its provisioner"},
		{"channel-unlabelled", e, "delete the Channel; its controller recreates it with the label application-name, by which application-broker finds it"},
		{"adapter-missing", e, "kubectl -n kyma-system logs deployment/event-sources-controller-manager"},
		{"adapter-without-channel", e, "events are lost: kubectl -n kyma-system logs deployment/event-sources-controller-manager"},
		{"adapter-not-ready", e, "kubectl -n kyma-integration describe service.serving.knative.dev; if it hangs on an old revision, delete the Service"},

		{"eventservice-missing", e, "check why application-operator does not install the release: kubectl -n kyma-integration logs statefulset/application-operator"},
		{"eventservice-not-switched", e, "upgrade application-connector; application-operator then upgrades the release: kubectl -n kyma-integration logs statefulset/application-operator"},
		{"eventservice-rollout", e, "kubectl -n kyma-integration rollout status deployment; then check its pods"},
		{"eventservice-former-pod", e, "check for a finalizer or a dead node: kubectl -n kyma-integration describe pod"},

		{"activation-terminating", e, "remove the finalizer of the Event Bus: eventmesh-migrate run --job eventbus-scaledown"},
		{"activation-finalizer", e, "its controller does not run, so remove it: eventmesh-migrate run --job eventbus-scaledown"},
		{"link-missing", e, "kubectl -n kyma-integration logs deployment/application-broker; serviceinstance-recreate creates the links of namespaces that are older than Kyma 1.9"},
		{"link-twice", e, "events arrive twice: delete all but the oldest of these Knative Subscriptions"},
		{"link-not-ready", e, "kubectl -n kyma-integration describe subscription.messaging.knative.dev"},
		{"link-elsewhere", e, "set spec.subscriber.uri to http://default-broker.<namespace>, or delete it: application-broker recreates it"},
		{"broker-missing", e, "kubectl label namespace <namespace> knative-eventing-injection=enabled, or: eventmesh-migrate run --job trigger-sync"},
		{"broker-not-ready", e, "kubectl describe broker.eventing.knative.dev default; then check its ingress and filter Deployments"},
		{"trigger-not-ready", e, "kubectl describe trigger.eventing.knative.dev"},
		{"trigger-stuck", e, "scale knative-eventing/eventing-controller to 0, remove the finalizers of its Knative Subscription, scale to 1"},
		{"trigger-without-broker", e, "create the Broker (see broker-missing), or recreate the Trigger with the right spec.broker, which cannot be changed"},
		{"trigger-without-source", w, "no Application has that name: correct the filter, or delete the Trigger"},
		{"trigger-without-link", e, "the Application's events do not reach the namespace: create a ServiceInstance of it there"},
		{"trigger-twice", e, "delete all but one of them: each event arrives once for each of them"},

		{"subscription-left", e, "eventmesh-migrate run --job trigger-sync; the report says what it waits for"},
		{"subscription-without-trigger", e, "eventmesh-migrate run --job trigger-sync; the report says why it creates none"},
		{"subscription-without-source", e, "no Application posts its events: change the publisher, then delete it, or label it to leave it out"},
		{"subscription-terminating", e, "remove the finalizer of the Event Bus: eventmesh-migrate run --job trigger-sync, or --job eventbus-purge"},

		{"eventbus-up", e, "eventmesh-migrate run --job eventbus-scaledown; the report says what still uses it"},
		{"eventbus-pods", e, "check for a finalizer or a dead node: kubectl -n kyma-system describe pod"},
		{"eventbus-autoscaler", e, "delete it: it would scale the Event Bus up again"},
		{"eventbus-leftovers", w, "nothing to do before 1.12; then: eventmesh-migrate run --job eventbus-purge --eventbus-purge.yes"},
		{"eventbus-leaked", w, "no event is lost: eventbus-purge deletes it with Kyma 1.12; to delete it now: kubectl -n kyma-system delete channel.messaging.knative.dev <name>"},
		{"stock-migration", e, "stop Kyma's own migration: kubectl -n kyma-system delete job <name>; then remove the sub-chart (migration-guide-1.11.md)"},
		{"namespace-terminating", e, "remove the finalizer of its EventActivations: eventmesh-migrate run --job eventbus-scaledown"},

		{"instance-failed", e, "delete it and recreate it, with its bindings: application-broker does not retry"},
		{"instance-not-ready", e, "kubectl -n kyma-integration logs deployment/application-broker"},
		{"instance-stuck", e, "check the log of application-broker, then remove the finalizer"},
		{"binding-not-ready", e, "its workload has no credentials: kubectl describe servicebinding"},
		{"usage-without-binding", e, "recreate the ServiceBinding: its workload has no credentials"},

		{"run-open", e, "run the job again to finish it, or undo it"},
		{"run-running", w, "wait until it ends, then verify again"},
		{"run-failed", e, "fix the error that eventmesh-migrate status shows, then run the job again"},
		{"run-deferred", w, "wait for what the report names, then run the job again"},
		{"lock-abandoned", w, "nothing to do: the next run takes the lock"},
		{"accounts-left", w, "the next upgrade that succeeds deletes them; if no upgrade follows: " + CleanUp},
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
