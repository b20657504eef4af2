package kyma

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// DefaultBroker is the name of the one Broker that Kyma uses in a namespace.
const DefaultBroker = "default"

// DefaultBrokerService is the name of the Service of that Broker.
const DefaultBrokerService = DefaultBroker + "-broker"

// What Knative's controller makes in a namespace with the label InjectionLabel,
// in addition to the Broker: ServiceAccounts and RoleBindings of these names.
const (
	BrokerIngressAccount = "eventing-broker-ingress"
	BrokerFilterAccount  = "eventing-broker-filter"
	// EventingNamespace is Knative's own.
	EventingNamespace = "knative-eventing"
)

// BrokerAccounts are the names of both accounts.
func BrokerAccounts() []string { return []string{BrokerIngressAccount, BrokerFilterAccount} }

// InjectedLabels are those that Knative's controller gives to all that it makes in the place of
// InjectionLabel: to the Broker, both accounts and their RoleBindings (knative/eventing v0.12.0,
// OwnedLabels in pkg/reconciler/namespace/resources).
func InjectedLabels() map[string]string {
	return map[string]string{"eventing.knative.dev/namespaceInjected": "true"}
}

// BrokerConfigBinding is the name of the RoleBinding in EventingNamespace that
// lets such an account of a namespace read the shared configuration.
func BrokerConfigBinding(namespace, account string) string {
	return "eventing-config-reader-" + namespace + "-" + account
}

// OfBroker looks up the namespace whose Broker an account or role binding is
// part of, if its namespace and name say so (docs/migration/domain.md §1.6).
func OfBroker[V any](namespaces map[string]V, namespace, name string) (v V, ok bool) {
	accounts := BrokerAccounts()
	if slices.Contains(accounts, name) {
		v, ok = namespaces[namespace]
		return v, ok
	}
	if namespace != EventingNamespace {
		return v, false
	}
	for of, value := range namespaces {
		for _, account := range accounts {
			if name == BrokerConfigBinding(of, account) {
				return value, true
			}
		}
	}
	return v, false
}

// TriggerBrokerLabel is put on a Trigger by a webhook of Knative.
const TriggerBrokerLabel = "eventing.knative.dev/broker"

// WebhookKeys are labels and annotations that webhooks of Knative put on objects: on each the user
// who made it, and the one who changed its spec last
// (knative.dev/pkg/webhook/resourcesemantics/defaulting). Who restores an object is another user
// than who made it.
func WebhookKeys() []string {
	return []string{
		TriggerBrokerLabel,
		"eventing.knative.dev/creator", "eventing.knative.dev/lastModifier",
		"messaging.knative.dev/creator", "messaging.knative.dev/lastModifier",
	}
}

// OriginAnnotation on a Trigger that trigger-sync made names the Kyma Subscription it came
// from, in the same namespace.
const OriginAnnotation = "eventmesh-migration.kyma-project.io/subscription"

// DeliveryAnnotation on such a Trigger says for which Subscription it was made, and with which
// content, as one hash: a Trigger that somebody has edited since has another content.
const DeliveryAnnotation = "eventmesh-migration.kyma-project.io/delivery"

// The Event Bus keeps a Channel for each kind of event, and a Knative
// Subscription for each Kyma Subscription, both in SystemNamespace with these
// labels.
const (
	EventSourceLabel      = "kyma-source-id"
	EventTypeLabel        = "kyma-event-type"
	EventTypeVersionLabel = "kyma-event-type-version"
)

// SubscriptionController is the Deployment in SystemNamespace that reconciles
// Kyma Subscriptions.
const SubscriptionController = "event-bus-subscription-controller"

// SubscriptionFinalizer is on Kyma Subscriptions, and on the Knative
// Subscriptions that the Event Bus makes for them; SubscriptionController adds
// and removes it.
const SubscriptionFinalizer = "subscription.finalizers.kyma-project.io"

// NATS Streaming, the store of the Event Bus, runs in a namespace of its own.
// Its Service does not expose the monitoring port.
const (
	NATSNamespace      = "natss"
	NATSMonitoringPort = 8222
	// NATSPod is its only pod, of the StatefulSet nats-streaming.
	NATSPod = "nats-streaming-0"
)

// NATSMonitoring names the monitoring port of a pod as the API server does, which
// reaches it through the pod's subresource proxy.
func NATSMonitoring(pod string) string { return fmt.Sprintf("%s:%d", pod, NATSMonitoringPort) }

// NATSChannel is the name of the channel in NATS Streaming in which a Knative
// Channel keeps its events.
func NATSChannel(namespace, channel string) string { return channel + "." + namespace }

// NATSDurable is the name of the durable subscription in NATS Streaming of a
// Knative Subscription.
func NATSDurable(subscription types.UID) string { return string(subscription) }

// LegacySubscriptionName is the name of the Knative Subscription that the Event
// Bus makes for a Kyma Subscription.
func LegacySubscriptionName(namespace, name string) string {
	return name + "--" + legacyNamespace.Replace(namespace)
}

// legacyNamespace is how the subscription-controller writes a namespace into a name.
var legacyNamespace = strings.NewReplacer("-", "-d", ".", "-p")

// consoleTriggers is the constant by which Kyma's Console names Triggers.
var consoleTriggers = uuid.MustParse("1b671a64-40d5-491e-99b0-da01ff1f3341")

// FunctionLabel is by which the Console finds the Triggers of a Function.
const FunctionLabel = "Function"

// FromConsole says whether the Console made the Subscription, for a Function.
func FromConsole(subscription *unstructured.Unstructured) bool {
	return strings.HasPrefix(strings.ToLower(subscription.GetName()), "lambda-") && subscription.GetLabels()[FunctionLabel] != ""
}

// TriggerName is the name of the Trigger that a Kyma Subscription becomes. For
// those of the Console it is the one under which it made, or will look for, the
// Trigger. For others it says which Subscription it was, as far as a DNS label
// can: a Trigger's name is a label's value, too, and Knative cuts it off, so that
// it must be short and have no dots.
func TriggerName(subscription *unstructured.Unstructured) string {
	name := subscription.GetName()
	if FromConsole(subscription) {
		return uuid.NewSHA1(consoleTriggers, []byte(strings.ToLower(name))).String()
	}
	sum := sha256.Sum256([]byte(subscription.GetNamespace() + "/" + name))
	suffix := hex.EncodeToString(sum[:6])
	const room = 63 - 1 - 12
	words := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '-'
		}
	}, name)
	words = strings.Trim(words[:min(len(words), room)], "-")
	if words == "" {
		words = "subscription"
	}
	return words + "-" + suffix
}

// EventServiceOf returns the Application whose event-service has the name, or
// the value of the label "app"; false if it is none's.
func EventServiceOf(name string) (application string, ok bool) {
	return strings.CutSuffix(name, eventServiceSuffix)
}

// SubscriberFields are those of a Channel's spec in which Knative keeps who subscribes to
// it: up to 0.13, and since.
func SubscriberFields() []string { return []string{"subscribable", "subscribers"} }

// TrimSubscribers removes from a Channel what Knative keeps in it.
func TrimSubscribers(channel *unstructured.Unstructured) {
	for _, field := range SubscriberFields() {
		unstructured.RemoveNestedField(channel.Object, "spec", field)
	}
}
