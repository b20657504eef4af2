package v1alpha1

// State sums up the conditions. None is final.
//
// +kubebuilder:validation:Enum=Ready;Processing;Warning;Error;Deleting
type State string

const (
	// StateReady: events are taken and delivered. An old backend may still deliver what it holds.
	StateReady State = "Ready"
	// StateProcessing: something is not yet as desired, and the operator works on it.
	StateProcessing State = "Processing"
	// StateWarning: somebody has to act, and events are taken and delivered as before.
	StateWarning State = "Warning"
	// StateError: events are not taken, or not delivered.
	StateError State = "Error"
	// StateDeleting: what the operator created is being removed.
	StateDeleting State = "Deleting"
)

// The types of conditions. Those that Kyma's own operator has, have its names.
const (
	// ConditionServed: the operator acts on this object. One Eventing is served in a cluster, the
	// oldest.
	ConditionServed = "Served"
	// ConditionDependenciesAvailable: the APIs that the backend needs are served, in the version
	// that it needs.
	ConditionDependenciesAvailable = "DependenciesAvailable"
	// ConditionOptionalFeatures: the APIs that it can do without are served, and autoscalers can
	// measure pods. It never changes the state.
	ConditionOptionalFeatures = "OptionalFeatures"
	// ConditionBackendAvailable: the backend takes events.
	ConditionBackendAvailable = "BackendAvailable"
	// ConditionStreamSize: the volume of NATS holds the stream that is asked for. It never changes
	// the state.
	ConditionStreamSize = "StreamSize"
	// ConditionNoDeadLetters: NATS keeps no event that was given up. It changes the state only when
	// there is little room for more.
	ConditionNoDeadLetters = "NoDeadLetters"
	// ConditionPodsReady: each pod of NATS, the controller and the publisher is ready. Events are
	// taken and delivered with fewer, too.
	ConditionPodsReady = "PodsReady"
	// ConditionPublisherProxyReady: the publisher is rolled out.
	ConditionPublisherProxyReady = "PublisherProxyReady"
	// ConditionSubscriptionManagerReady: the controller is rolled out.
	ConditionSubscriptionManagerReady = "SubscriptionManagerReady"
	// ConditionSwitching: a change of the backend is under way; its reason is the step.
	ConditionSwitching = "Switching"
	// ConditionSpecApplied: what is installed is what the spec asks for. Its reason says what keeps
	// it from that.
	ConditionSpecApplied = "SpecApplied"
	// ConditionUpgraded: what an older version of the operator installed is what this one would
	// install.
	ConditionUpgraded = "Upgraded"
	// ConditionDeleted says why a deletion is not finished.
	ConditionDeleted = "Deleted"
)

// The reasons of conditions.
const (
	ReasonServed          = "Served"
	ReasonAnotherCRServed = "AnotherCRServed"
	ReasonWaitsForLease   = "WaitsForLease"
	ReasonAvailable       = "Available"
	ReasonWaiting         = "Waiting"
	ReasonMissing         = "Missing"
	ReasonWrongVersion    = "WrongVersion"
	ReasonCRDConflict     = "CRDConflict"
	ReasonAllApplied      = "AllApplied"
	ReasonSkipped         = "Skipped"
	ReasonNATSAvailable   = "NATSAvailable"
	ReasonNATSUnavailable = "NATSUnavailable"
	ReasonStorageFull     = "StorageFull"
	ReasonNotWritable     = "StorageNotWritable"
	ReasonTypeFull        = "TypeFull"
	ReasonNoDeadLetters   = "NoDeadLetters"
	ReasonDeadLetters     = "DeadLettersStored"
	ReasonDeadLettersFull = "DeadLettersFull"
	ReasonAllReady        = "AllReady"
	ReasonDegraded        = "Degraded"
	ReasonSizeAsWanted    = "AsWanted"
	ReasonSizeLimited     = "LimitedByVolume"
	ReasonMeshAvailable   = "EventMeshAvailable"
	ReasonMeshUnavailable = "EventMeshUnavailable"
	ReasonNoBackend       = "BackendNotSpecified"
	ReasonNotSupported    = "BackendNotSupported"
	ReasonForeignObject   = "ForeignObject"
	ReasonDeployed        = "Deployed"
	ReasonProcessing      = "Processing"
	ReasonDeployFailed    = "DeployFailed"
	ReasonDeployDeleted   = "Deleted"
	ReasonStopped         = "Stopped"
	ReasonIdle            = "Idle"
	ReasonProvisioning    = "Provisioning"
	ReasonAwaiting        = "AwaitingSubscriptions"
	ReasonRollingOut      = "RollingOutPublisher"
	ReasonClosing         = "Closing"
	ReasonDraining        = "Draining"
	ReasonDangling        = "Dangling"
	ReasonRemoving        = "Removing"
	ReasonBlocked         = "Blocked"
	ReasonApplied         = "Applied"
	ReasonSpecInvalid     = "SpecInvalid"
	ReasonRefused         = "Refused"
	ReasonFailing         = "Failing"
	ReasonCurrent         = "Current"
	ReasonMigrating       = "Migrating"
	ReasonMigrationFailed = "MigrationFailed"
	ReasonDeleting        = "Deleting"
	ReasonSubscriptions   = "SubscriptionsExist"
	ReasonNATSUnreachable = "NATSUnreachable"
	ReasonStreamNotEmpty  = "StreamNotEmpty"
	ReasonForeignStreams  = "ForeignStreams"
	ReasonDeletionError   = "DeletionError"
)
