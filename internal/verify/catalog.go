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
	// finished; warning if somebody should know.
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
		{"kind-missing", e, "install the component that brings the kind, then run the upgrade's hooks again"},
		{"controller-down", e, "scale it up again: nothing heals by itself while it is down"},

		{"application-name", e, "create the Application under a name of lower-case letters, digits and dashes, at most 63, that begins with a letter"},
		{"release-failed", e, "mend what it says, then: kubectl -n kyma-integration rollout restart statefulset application-operator"},
		{"skipped-event-service", e, "set spec.skipInstallation to false, or delete the release"},

		{"httpsource-missing", e, "eventmesh-migrate run --job httpsource-sync"},
		{"httpsource-terminating", e, "wait until it is gone; if it stays, a finalizer holds it: look for whoever set it"},
		{"httpsource-foreign", e, "rename or delete the HTTPSource that has the name, then: eventmesh-migrate run --job httpsource-sync"},
		{"httpsource-not-ready", e, "kubectl -n kyma-system logs deployment/event-sources-controller-manager"},
		{"channel-missing", e, "kubectl -n kyma-system logs deployment/event-sources-controller-manager; Knative Eventing's webhook may refuse it"},
		{"channel-former", e, "it is about to be garbage-collected; if it stays, kube-controller-manager does not run"},
		{"channel-foreign", e, "rename or delete it if nothing uses it: the controller of HTTPSources overwrites it"},
		{"channel-not-ready", e, "kubectl -n kyma-integration describe channel.messaging.knative.dev; usually NATS Streaming or its provisioner"},
		{"channel-no-address", e, "kubectl -n kyma-integration describe channel.messaging.knative.dev; usually NATS Streaming or its provisioner"},
		{"channel-unlabelled", e, "delete the Channel, the controller makes it anew with the label application-name: application-broker finds it by that"},
		{"adapter-missing", e, "kubectl -n kyma-system logs deployment/event-sources-controller-manager"},
		{"adapter-without-channel", e, "events are lost: kubectl -n kyma-system logs deployment/event-sources-controller-manager"},
		{"adapter-not-ready", e, "kubectl -n kyma-integration describe service.serving.knative.dev; if it hangs on an old revision, delete the Service"},

		{"eventservice-missing", e, "kubectl -n kyma-integration logs statefulset/application-operator: it installs the release"},
		{"eventservice-not-switched", e, "upgrade application-connector; application-operator then upgrades the release: kubectl -n kyma-integration logs statefulset/application-operator"},
		{"eventservice-rollout", e, "kubectl -n kyma-integration rollout status deployment; look at its pods"},
		{"eventservice-former-pod", e, "kubectl -n kyma-integration describe pod: a finalizer or a dead node holds it"},

		{"activation-terminating", e, "eventmesh-migrate run --job eventbus-scaledown takes the finalizer of the Event Bus off"},
		{"activation-finalizer", e, "eventmesh-migrate run --job eventbus-scaledown: with its controller at 0 nobody else takes it off"},
		{"link-missing", e, "kubectl -n kyma-integration logs deployment/application-broker; serviceinstance-recreate links namespaces from before 1.9"},
		{"link-twice", e, "events arrive twice: delete all but the oldest of these Knative Subscriptions"},
		{"link-not-ready", e, "kubectl -n kyma-integration describe subscription.messaging.knative.dev"},
		{"link-elsewhere", e, "set spec.subscriber.uri to http://default-broker.<namespace>, or delete it and let application-broker make it anew"},
		{"broker-missing", e, "kubectl label namespace <namespace> knative-eventing-injection=enabled, or: eventmesh-migrate run --job trigger-sync"},
		{"broker-not-ready", e, "kubectl describe broker.eventing.knative.dev default; look at its ingress and filter Deployments"},
		{"trigger-not-ready", e, "kubectl describe trigger.eventing.knative.dev"},
		{"trigger-stuck", e, "scale knative-eventing/eventing-controller to 0, take the finalizers off its Knative Subscription, scale to 1"},
		{"trigger-without-broker", e, "create the Broker (see broker-missing), or correct spec.broker: a new Trigger, the field cannot be changed"},
		{"trigger-without-source", w, "no Application has that name: correct the filter, or delete the Trigger"},
		{"trigger-without-link", e, "the Application's events do not reach the namespace: create a ServiceInstance of it there"},
		{"trigger-twice", e, "delete all but one of them: each event arrives once for each"},

		{"subscription-left", e, "eventmesh-migrate run --job trigger-sync; it says what it waits for"},
		{"subscription-without-trigger", e, "eventmesh-migrate run --job trigger-sync; it says why it makes none"},
		{"subscription-without-source", e, "no Application posts its events: change the publisher, then delete it, or label it to leave it out"},
		{"subscription-terminating", e, "its finalizer is the Event Bus's: eventmesh-migrate run --job trigger-sync, or --job eventbus-purge"},

		{"eventbus-up", e, "eventmesh-migrate run --job eventbus-scaledown; it says what still uses it"},
		{"eventbus-pods", e, "kubectl -n kyma-system describe pod: a finalizer or a dead node holds it"},
		{"eventbus-autoscaler", e, "delete it, or it scales the Event Bus up again"},
		{"eventbus-leftovers", w, "nothing to do before 1.12; then: eventmesh-migrate run --job eventbus-purge --eventbus-purge.yes"},
		{"eventbus-leaked", w, "no event is lost: eventbus-purge deletes it with Kyma 1.12; to delete it now: kubectl -n kyma-system delete channel.messaging.knative.dev <name>"},
		{"stock-migration", e, "stop Kyma's own migration: kubectl -n kyma-system delete job; then take the sub-chart out (migration-guide-1.11.md)"},
		{"namespace-terminating", e, "EventActivations hold it: eventmesh-migrate run --job eventbus-scaledown takes their finalizer off"},

		{"instance-failed", e, "svcat describe instance: application-broker never retries; delete it and create it anew, with its bindings"},
		{"instance-not-ready", e, "kubectl -n kyma-integration logs deployment/application-broker"},
		{"instance-stuck", e, "its deprovisioning has failed for good: look at the broker, then take the finalizer off"},
		{"binding-not-ready", e, "kubectl describe servicebinding: its workload lacks its credentials"},
		{"usage-without-binding", e, "create the ServiceBinding anew: its workload lacks its credentials"},

		{"run-open", e, "run the job again to finish it, or undo it"},
		{"run-running", w, "wait until it ends, then verify again"},
		{"run-failed", e, "eventmesh-migrate status says why; mend that and run the job again"},
		{"run-deferred", w, "run the job again when what it waits for is there"},
		{"lock-abandoned", w, "nothing: the next run takes it over"},
		{"accounts-left", w, "nothing while an upgrade runs or comes next, since its end deletes them; otherwise: " + CleanUp},
	}
}

// Finding is one entry of the catalog found on one object.
type Finding struct {
	ID        string             `json:"id"`
	Severity  migration.Severity `json:"severity"`
	Object    string             `json:"object,omitempty"`
	Namespace string             `json:"namespace,omitempty"`
	Problem   string             `json:"problem"`
	Hint      string             `json:"hint"`
	Page      string             `json:"page"`
}
