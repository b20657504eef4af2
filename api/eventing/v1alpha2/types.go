package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Finalizer is on Subscriptions for which the controller has created something at a backend.
	Finalizer = "eventing.kyma-project.io"
	// SkipSwitchLabel with the value "true" takes a Subscription out of those that a switch of the
	// backend waits for.
	SkipSwitchLabel = "eventing.kyma-project.io/skip-switch"
	// MaxInFlight is the key in spec.config of the number of events that are delivered at the same
	// time: "1" to "1000". With "1", events are delivered in their order.
	MaxInFlight = "maxInFlightMessages"
)

// TypeMatching says how an event is compared with source and types.
//
// +kubebuilder:validation:Enum=standard;exact
type TypeMatching string

const (
	// Standard compares source and type for equality.
	Standard TypeMatching = "standard"
	// Exact compares a type with the whole name of an event, and says nothing of the source:
	// <source>.<type>; or, as Kyma's first eventing named events of Applications,
	// sap.kyma.custom.<application>.<event>.<version>.
	Exact TypeMatching = "exact"
)

// Subscription sends events to a sink.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=subscriptions,categories={kyma-eventing}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.ready"
// +kubebuilder:printcolumn:name="Delivering",type="string",JSONPath=".status.conditions[?(@.type=='Sink delivering')].status"
// +kubebuilder:printcolumn:name="Backlog",type="integer",JSONPath=".status.delivery.backlog"
// +kubebuilder:printcolumn:name="Source",type="string",JSONPath=".spec.source"
// +kubebuilder:printcolumn:name="Sink",type="string",JSONPath=".spec.sink",priority=1
// +kubebuilder:printcolumn:name="Oldest",type="date",JSONPath=".status.delivery.oldest",priority=1
// +kubebuilder:printcolumn:name="Repeating",type="integer",JSONPath=".status.delivery.repeating",priority=1
// +kubebuilder:printcolumn:name="Dead letters",type="integer",JSONPath=".status.delivery.deadLetters",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type Subscription struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SubscriptionSpec   `json:"spec"`
	Status SubscriptionStatus `json:"status,omitempty"`
}

// SubscriptionList is a list of Subscriptions.
//
// +kubebuilder:object:root=true
type SubscriptionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Subscription `json:"items"`
}

// SubscriptionSpec is which events go where.
//
// +kubebuilder:validation:XValidation:rule="self.typeMatching == 'exact' || size(self.source) > 0",message="source must not be empty with typeMatching standard: name the source of the events, or use typeMatching exact",fieldPath=".source"
// +kubebuilder:validation:XValidation:rule="self.typeMatching == 'exact' || !self.source.matches('[[:cntrl:]]') && (!self.source.contains('#') || !self.source.split('#', 2)[1].matches('%([^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$)')) && [self.source.split('#')[0]].all(u, u.matches('^[a-zA-Z][a-zA-Z0-9+.-]*:') ? isURL(u) : u.startsWith('//') && !u.startsWith('///') ? isURL('http:' + u) : !u.split('?')[0].split('/')[0].contains(':') && isURL('/' + u))",message="source must be a URI reference with typeMatching standard: use another one, or typeMatching exact",fieldPath=".source"
// +kubebuilder:validation:XValidation:rule="self.typeMatching == 'exact' || self.types.all(t, !t.startsWith('sap.kyma.custom'))",message="types must not begin with sap.kyma.custom with typeMatching standard: leave the prefix out, or use typeMatching exact",fieldPath=".types"
// +kubebuilder:validation:XValidation:rule="self.typeMatching != 'exact' || self.types.all(t, t.startsWith('sap.kyma.custom.') || t.matches('^[^.]+[.][^.]*[.]') && !t.matches('^[^.]+[.]sap[.]kyma[.]custom[.]'))",message="types must be whole names with typeMatching exact: <source>.<type>, where the type has two parts, or sap.kyma.custom.<application>.<event>.<version>",fieldPath=".types"
// +kubebuilder:validation:XValidation:rule="!has(self.config) || !('maxInFlightMessages' in self.config) || self.config['maxInFlightMessages'].matches('^([1-9][0-9]{0,2}|1000)$')",message="config.maxInFlightMessages must be a number from 1 to 1000, in quotes",fieldPath=".config"
type SubscriptionSpec struct {
	// ID is set by nobody here. It is accepted, and stays.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ID string `json:"id,omitempty"`

	// Sink is the URL of a Service in the namespace of the Subscription:
	// http(s)://<service>.<namespace>.svc.cluster.local[:port][/path].
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[a-z0-9]([-a-z0-9]*[a-z0-9])?[.][a-z0-9]([-a-z0-9]*[a-z0-9])?[.]svc[.]cluster[.]local(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[^#]*)?$') && isURL(self)",message="sink must be http(s)://<service>.<namespace>.svc.cluster.local[:port][/path]"
	Sink string `json:"sink"`

	// DeadLetterSink is the URL of a Service, as in sink, that gets the events of this Subscription
	// that are given up. What it does not take is stored; on the mesh, the client is told.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^https?://[a-z0-9]([-a-z0-9]*[a-z0-9])?[.][a-z0-9]([-a-z0-9]*[a-z0-9])?[.]svc[.]cluster[.]local(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[^#]*)?$') && isURL(self)",message="deadLetterSink must be http(s)://<service>.<namespace>.svc.cluster.local[:port][/path]"
	// +optional
	DeadLetterSink string `json:"deadLetterSink,omitempty"`

	// TypeMatching is standard or exact.
	// +kubebuilder:default=standard
	// +optional
	TypeMatching TypeMatching `json:"typeMatching,omitempty"`

	// Source is the source of the events, at most 512 bytes: a URI reference, as in the events.
	// With typeMatching exact it says nothing, and may be empty.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="size(bytes(self)) <= 512",message="source must have at most 512 bytes"
	Source string `json:"source"`

	// Types are the types of the events: printable ASCII with at least one dot, at most 253
	// characters.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[!-~]*[.][!-~]*$`
	// +listType=set
	Types []string `json:"types"`

	// Config has the key maxInFlightMessages.
	// +kubebuilder:default={maxInFlightMessages: "10"}
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	Config map[string]string `json:"config,omitempty"`
}

// SubscriptionStatus is what the controller has observed.
type SubscriptionStatus struct {
	// Ready means: every event that is accepted from now on reaches the sink at least once.
	Ready bool `json:"ready"`

	// Types are the types as they are given, and as the backend compares them.
	Types []EventType `json:"types"`

	// +optional
	Backend BackendStatus `json:"backend,omitempty"`

	// Backends says for each backend whether it delivers to the sink.
	// +listType=map
	// +listMapKey=type
	// +optional
	Backends []BackendReadiness `json:"backends,omitempty"`

	// Delivery has numbers of the events that wait. It is not there while nobody has looked, and on
	// EventMesh, where nobody can.
	// +optional
	Delivery *DeliveryStatus `json:"delivery,omitempty"`

	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// DeliveryStatus are the events of a Subscription that wait in NATS. Numbers are written when one
// becomes 0 or is 0 no more, or is more than a fifth off, and not more often than every 30 seconds.
// The metric eventing_delivery_backlog is newer.
type DeliveryStatus struct {
	// Backlog is the number of events that the sink has not taken. It is 0 while none was refused
	// or is older than 30 seconds: those are on their way.
	Backlog int64 `json:"backlog"`
	// Oldest is when the oldest of them was published, as far as that is known.
	// +optional
	Oldest *metav1.Time `json:"oldest,omitempty"`
	// Repeating is how many of them the sink has refused, or not answered, at least once. They are
	// sent again.
	Repeating int64 `json:"repeating"`
	// DeadLetters is the number of events that were given up and are stored.
	// +optional
	DeadLetters int64 `json:"deadLetters,omitempty"`
}

// EventType is a type as it is given and as it is compared. Both are equal here.
type EventType struct {
	OriginalType string `json:"originalType"`
	CleanType    string `json:"cleanType"`
}

// BackendStatus has the names that the backend uses.
type BackendStatus struct {
	// +optional
	Types []BackendEventType `json:"types,omitempty"`
}

// BackendEventType is the consumer of a type.
type BackendEventType struct {
	OriginalType string `json:"originalType"`
	// +optional
	ConsumerName string `json:"consumerName,omitempty"`
}

// BackendReadiness says whether a backend delivers to the sink.
type BackendReadiness struct {
	// Type is NATS or EventMesh.
	Type string `json:"type"`
	// Ready: what delivers exists, and is ready.
	Ready bool `json:"ready"`
	// ObservedGeneration is the metadata.generation of the Subscription that this is about.
	ObservedGeneration int64 `json:"observedGeneration"`
	// Serving are the backends that served when this was found out, sorted, with commas.
	Serving string `json:"serving"`
	// Epoch is that of the ConfigMap eventing-backends when this was found out.
	Epoch string `json:"epoch"`
}

// Condition has the shape of those of Kyma's own controller. Types and reasons have spaces:
// dashboards read them.
type Condition struct {
	Type   ConditionType          `json:"type"`
	Status corev1.ConditionStatus `json:"status"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
}

// ConditionType is the type of a condition.
type ConditionType string

// The types of conditions, and their reasons.
const (
	ConditionActive    ConditionType = "Subscription active"
	ConditionSpecValid ConditionType = "Subscription spec valid"
	// ConditionDelivering: the sink takes events. A Subscription whose sink takes none is ready
	// nevertheless: its events wait.
	ConditionDelivering ConditionType = "Sink delivering"
	// ConditionConfigUsed is there only if config has keys that have no effect. It never changes
	// whether a Subscription is ready.
	ConditionConfigUsed ConditionType = "Config used"

	ReasonNATSActive    = "NATS Subscription active"
	ReasonNATSNotActive = "NATS Subscription not active"
	ReasonMeshActive    = "EventMesh Subscription active"
	ReasonMeshNotActive = "EventMesh Subscription not active"
	ReasonSpecValid     = "Subscription spec has no validation errors"
	ReasonSpecInvalid   = "Subscription spec has validation errors"
	ReasonDelivering    = "Delivering"
	ReasonRetrying      = "Retrying"
	ReasonNoEffect      = "Keys without effect"
)

// The reasons of Events about the delivery to a sink.
const (
	// EventFailing: the sink has begun to refuse events, or not to answer.
	EventFailing = "DeliveryFailing"
	// EventRecovered: the sink takes events again.
	EventRecovered = "DeliveryRecovered"
	// EventBlocked: one event keeps all later ones from being sent, with maxInFlightMessages "1".
	EventBlocked = "DeliveryBlocked"
	// EventGivenUp: an event became a dead letter.
	EventGivenUp = "DeliveryGivenUp"
)
