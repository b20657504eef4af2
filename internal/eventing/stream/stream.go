// Package stream defines the settings of the stream and of its consumers in NATS. Several settings
// that look harmless lose events, so each one was tried on the real server and has a test
// (test/integration/eventing).
package stream

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

const (
	// DuplicateWindow is how long NATS knows the id of a message, also after it was delivered, and
	// while the stream is closed.
	DuplicateWindow = 2 * time.Minute
	// maxAckPending bounds what waits for an answer. A message that is refused and waits for its
	// next try counts, and without a place no new event is sent (docs/decisions/1021). Each place
	// costs NATS some 100 bytes while it is taken.
	maxAckPending = 50_000

	managedBy = "managed-by"
	epochKey  = "epoch"
	// ClosedAtKey is in the metadata of a stream that was closed: when, as RFC 3339.
	ClosedAtKey = "closed-at"
	// SubscriptionKey is in the metadata of a consumer: <namespace>/<name>.
	SubscriptionKey = "subscription"
	// UIDKey is in the metadata of a consumer: the UID of its Subscription. Consumers of earlier
	// versions have none, and are taken over.
	UIDKey = "subscription-uid"
	// GenerationKey is in the metadata of a consumer: the generation of its Subscription that it
	// was made for last. What delivers by an earlier one is behind.
	GenerationKey = "subscription-generation"
)

// Config is the stream. While it is closed, no event can be published to it, and consumers go on.
// NATS discards nothing: a full stream refuses events, those of one type of one source included.
// Without DiscardNewPerSubject, it would delete events that nobody got.
//
// One server deletes an event when each consumer has acknowledged it. Several servers keep it until
// Purge deletes it: each of them decides by the consumers that it knows, and a server that was away
// or has lost its volume stores events before it knows of the consumers that are new to it. It
// would skip what only those wait for, for ever, and be as healthy as the others:
// docs/decisions/1215-nats-servers-and-their-volumes.md.
func Config(c operatorv1alpha1.BackendConfig, epoch string, open bool) jetstream.StreamConfig {
	subjects, storage := backend.ClosedSubjects, jetstream.FileStorage
	if open {
		subjects = backend.OpenSubjects
	}
	if c.NATSStreamStorageType == operatorv1alpha1.StorageMemory {
		storage = jetstream.MemoryStorage
	}
	retention := jetstream.InterestPolicy
	if c.NATSStreamReplicas > 1 {
		retention = jetstream.LimitsPolicy
	}
	return jetstream.StreamConfig{
		Name:                 backend.Stream,
		Subjects:             []string{subjects},
		Retention:            retention,
		Storage:              storage,
		Replicas:             int(c.NATSStreamReplicas),
		MaxBytes:             c.NATSStreamMaxSize.Value(),
		MaxMsgsPerSubject:    c.NATSMaxMsgsPerTopic,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		Duplicates:           DuplicateWindow,
		Metadata:             map[string]string{managedBy: backend.Operator, epochKey: epoch},
	}
}

// KeepsTaken tells whether events stay in a stream when each consumer has taken them, until they
// are purged.
func KeepsTaken(c jetstream.StreamConfig) bool { return c.Retention == jetstream.LimitsPolicy }

// Differs tells whether a stream is not as it is wanted. Metadata that NATS or others added do not
// count.
func Differs(is, want jetstream.StreamConfig) bool {
	if len(is.Subjects) != 1 || is.Subjects[0] != want.Subjects[0] {
		return true
	}
	for key, value := range want.Metadata {
		if is.Metadata[key] != value {
			return true
		}
	}
	return is.Retention != want.Retention || is.Storage != want.Storage || is.Replicas != want.Replicas || is.MaxBytes != want.MaxBytes ||
		is.MaxMsgsPerSubject != want.MaxMsgsPerSubject || is.Discard != want.Discard || is.DiscardNewPerSubject != want.DiscardNewPerSubject ||
		is.Duplicates != want.Duplicates || is.MaxAge != want.MaxAge || is.MaxMsgs > 0
}

// Closed is the stream from a time on: it takes no event.
func Closed(c jetstream.StreamConfig, at time.Time) jetstream.StreamConfig {
	c.Subjects = []string{backend.ClosedSubjects}
	c.Metadata = maps.Clone(c.Metadata)
	c.Metadata[ClosedAtKey] = at.UTC().Format(time.RFC3339)
	return c
}

// ClosedAt is when a stream was closed; false if it is open or was never open.
func ClosedAt(c jetstream.StreamConfig) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, c.Metadata[ClosedAtKey])
	return at, err == nil && !Open(c)
}

// Epoch is that of a stream; "" if it is not ours.
func Epoch(c jetstream.StreamConfig) string {
	if c.Metadata[managedBy] != backend.Operator {
		return ""
	}
	return c.Metadata[epochKey]
}

// Open tells whether events can be published to a stream.
func Open(c jetstream.StreamConfig) bool {
	return len(c.Subjects) == 1 && c.Subjects[0] == backend.OpenSubjects
}

// Consumer is the one durable consumer of a Subscription. It never gives up: after the last of a
// limited number of deliveries, a message would stay in the stream for ever, while the consumer
// says that nothing is pending.
func Consumer(namespace, name string, filters []string, inOrder bool) jetstream.ConsumerConfig {
	pending := maxAckPending
	if inOrder {
		pending = 1
	}
	return jetstream.ConsumerConfig{
		Durable:        backend.ConsumerName(namespace, name),
		FilterSubjects: filters,
		DeliverPolicy:  jetstream.DeliverNewPolicy,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        backend.AckWait,
		MaxDeliver:     -1,
		MaxAckPending:  pending,
		Metadata:       map[string]string{SubscriptionKey: namespace + "/" + name},
	}
}

// WithRetries is a consumer that also gets what was stored for it again: where taken events are
// kept, one that is refused holds up the purge of all that came after it, and is stored again,
// behind them. The filter stays as long as the stream, so that no such event is left.
func WithRetries(c jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	c.FilterSubjects = append(slices.Clone(c.FilterSubjects), backend.RetrySubject(c.Durable))
	return c
}

// ConsumerDiffers tells whether a consumer is not as it is wanted. Metadata that NATS added do not
// count.
func ConsumerDiffers(is, want jetstream.ConsumerConfig) bool {
	filters := Filters(is)
	for key, value := range want.Metadata {
		if is.Metadata[key] != value {
			return true
		}
	}
	return !slices.Equal(slices.Sorted(slices.Values(filters)), slices.Sorted(slices.Values(want.FilterSubjects))) ||
		is.DeliverPolicy != want.DeliverPolicy || is.AckPolicy != want.AckPolicy || is.AckWait != want.AckWait ||
		is.MaxDeliver != want.MaxDeliver || is.MaxAckPending != want.MaxAckPending || is.InactiveThreshold != 0 || is.PauseUntil != nil
}

// OfAnother tells whether a consumer is that of another Subscription than the one with this UID.
func OfAnother(c jetstream.ConsumerConfig, uid string) bool {
	of := c.Metadata[UIDKey]
	return of != "" && of != uid
}

// Subscription is the namespace and the name of the Subscription of a consumer. ok is false for a
// consumer that is not ours.
func Subscription(c jetstream.ConsumerConfig) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(c.Metadata[SubscriptionKey], "/")
	return namespace, name, ok && c.Durable == backend.ConsumerName(namespace, name)
}
