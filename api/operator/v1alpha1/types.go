package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Finalizer is on the Eventing that is served, and on no other.
	Finalizer = "eventing-manager.kyma-project.io/deletion-hook"
	// ForceDeletionAnnotation with the value "true" lets the deletion go on although events may be
	// lost.
	ForceDeletionAnnotation = "eventing.kyma-project.io/force-deletion"
	// ForceTeardownAnnotation lets a switch go on although the backend that is left holds events
	// that nobody took. Its value is <backend>/<status.switch.since>, so that an old value does
	// nothing.
	ForceTeardownAnnotation = "eventing.kyma-project.io/force-teardown"
)

// BackendType is a backend as it is spelled in an object. Both the old spelling ("nats",
// "eventmesh") and the new one ("NATS", "EventMesh") are accepted. Compare what Canonical returns.
//
// +kubebuilder:validation:Enum=nats;eventmesh;NATS;EventMesh;""
type BackendType string

// The backends, in canonical spelling.
const (
	NATS      BackendType = "NATS"
	EventMesh BackendType = "EventMesh"
)

// BackendTypes are all backends.
var BackendTypes = []BackendType{NATS, EventMesh}

// BackendNames are all backends, as a message asks for one of them: "NATS or EventMesh".
func BackendNames() string {
	var names []string
	for _, b := range BackendTypes {
		names = append(names, string(b))
	}
	return strings.Join(names, " or ")
}

// Canonical is NATS, EventMesh, or "" for none. A spelling that the API server would refuse is
// returned as it is.
func (b BackendType) Canonical() BackendType {
	for _, known := range BackendTypes {
		if strings.EqualFold(string(b), string(known)) {
			return known
		}
	}
	return b
}

// StorageType says where NATS stores its stream.
//
// +kubebuilder:validation:Enum=File;Memory
type StorageType string

// The storage types.
const (
	StorageFile   StorageType = "File"
	StorageMemory StorageType = "Memory"
)

// Retention says what happens to the volumes of NATS when NATS is removed.
//
// +kubebuilder:validation:Enum=Retain;Delete
type Retention string

// The retentions.
const (
	RetentionRetain Retention = "Retain"
	RetentionDelete Retention = "Delete"
)

// Sync says when NATS writes an event to the disk.
//
// +kubebuilder:validation:Enum=Always;Interval
type Sync string

const (
	// SyncAlways writes each event to the disk before it is acknowledged. No event is lost if the
	// node fails.
	SyncAlways Sync = "Always"
	// SyncInterval writes to the disk every 10 seconds. It is faster, and a node that fails loses
	// up to 10 seconds.
	SyncInterval Sync = "Interval"
)

// Spread says how pods of one program are spread over nodes and zones.
//
// +kubebuilder:validation:Enum=Preferred;None
type Spread string

// The ways of spreading.
const (
	SpreadPreferred Spread = "Preferred"
	SpreadNone      Spread = "None"
)

// Eventing is the one object that an administrator applies to have eventing.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=eventings,categories={kyma-modules,kyma-eventing}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.state"
// +kubebuilder:printcolumn:name="Backend",type="string",JSONPath=".spec.backend.type"
// +kubebuilder:printcolumn:name="Active",type="string",JSONPath=".status.activeBackend"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type Eventing struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	Spec   EventingSpec   `json:"spec,omitempty"`
	Status EventingStatus `json:"status,omitempty"`
}

// EventingList is a list of Eventings.
//
// +kubebuilder:object:root=true
type EventingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Eventing `json:"items"`
}

// LabelValue is the value of a label: at most 63 letters, digits, -, _ and ., a letter or digit
// first and last.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
type LabelValue string

// EventingSpec is the desired state.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.backend) || has(self.backend)",message="backend cannot be removed once it is set: change backend.type instead, or delete the Eventing"
type EventingSpec struct {
	// Backend carries the events. Without it, nothing is installed and the state is Warning.
	// +optional
	Backend *Backend `json:"backend,omitempty"`

	// Publisher is the server that takes events from publishers.
	// +kubebuilder:default={}
	Publisher Publisher `json:"publisher,omitempty"`

	// Controller delivers events to the sinks of Subscriptions.
	// +kubebuilder:default={}
	Controller Controller `json:"controller,omitempty"`

	// Logging is that of the publisher and the controller.
	// +kubebuilder:default={}
	Logging Logging `json:"logging,omitempty"`

	// Tracing is that of the publisher and the controller; without it, they make no spans.
	// +optional
	Tracing *Tracing `json:"tracing,omitempty"`

	// Annotations are added to every object that the operator creates. Keys and values have at most
	// 60,000 characters together. Keys that the operator or Kubernetes gives a meaning on these
	// objects are refused.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="keys must be names such as example.com/team: [<prefix>/]<name>, the prefix a DNS name, the name of at most 63 letters, digits, -, _ and ."
	// +kubebuilder:validation:XValidation:rule="self.map(k, size(k) + size(self[k])).sum() <= 60000",message="keys and values must have at most 60000 characters together"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('eventing.kyma-project.io/') || k.startsWith('deployment.kubernetes.io/') || k.startsWith('container.apparmor.security.beta.kubernetes.io/') || k in ['kubernetes.io/config.mirror', 'controller.kubernetes.io/pod-deletion-cost', 'kubectl.kubernetes.io/last-applied-configuration'])",message="keys must not be those of the operator (eventing.kyma-project.io/...) or of Kubernetes: deployment.kubernetes.io/..., container.apparmor.security.beta.kubernetes.io/..., kubernetes.io/config.mirror, controller.kubernetes.io/pod-deletion-cost and kubectl.kubernetes.io/last-applied-configuration"
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// Labels are added to every object that the operator creates. The operator's own labels win.
	// Labels by which deployment tools find what they may delete are refused: the objects are the
	// operator's.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="keys must be names such as example.com/team: [<prefix>/]<name>, the prefix a DNS name, the name of at most 63 letters, digits, -, _ and ."
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`
}

// Backend is a backend and its settings. What depends on the size of NATS cannot change while NATS
// is the backend, before and after the change: a stream does not change its storage, and a server's
// stream does not move into a cluster of servers.
//
// +kubebuilder:validation:XValidation:rule="!(self.type in ['nats','NATS'] && oldSelf.type in ['nats','NATS']) || self.config.natsStreamStorageType == oldSelf.config.natsStreamStorageType",message="config.natsStreamStorageType cannot change while NATS is the backend: switch to EventMesh, change it, and switch back"
// +kubebuilder:validation:XValidation:rule="!(self.type in ['nats','NATS'] && oldSelf.type in ['nats','NATS']) || self.config.natsStreamReplicas == oldSelf.config.natsStreamReplicas",message="config.natsStreamReplicas cannot change while NATS is the backend: switch to EventMesh, change it, and switch back"
// +kubebuilder:validation:XValidation:rule="!(self.type in ['nats','NATS'] && oldSelf.type in ['nats','NATS']) || self.config.natsStorage.storageClassName == oldSelf.config.natsStorage.storageClassName",message="config.natsStorage.storageClassName cannot change while NATS is the backend: switch to EventMesh, change it, and switch back"
// +kubebuilder:validation:XValidation:rule="!(self.type in ['nats','NATS'] && oldSelf.type in ['nats','NATS']) || quantity(string(self.config.natsStorage.size)).compareTo(quantity(string(oldSelf.config.natsStorage.size))) == 0",message="config.natsStorage.size cannot change while NATS is the backend: switch to EventMesh, change it, and switch back"
type Backend struct {
	// Type is NATS or EventMesh. "nats" and "eventmesh" are accepted, too.
	// +kubebuilder:default=NATS
	// +optional
	Type BackendType `json:"type,omitempty"`

	// +kubebuilder:default={}
	// +optional
	Config BackendConfig `json:"config,omitempty"`
}

// BackendConfig is how the backends are installed. Rules begin with has() because the API server
// checks the default {} before it fills in the defaults inside.
//
// +kubebuilder:validation:XValidation:rule="!has(self.natsStorage) || !has(self.natsStorage.size) || self.natsStreamStorageType != 'File' || quantity(string(self.natsStorage.size)).asApproximateFloat() * 5.0 >= quantity(string(self.natsStreamMaxSize)).asApproximateFloat() * 6.0",message="natsStorage.size must be at least 1.2 times natsStreamMaxSize"
type BackendConfig struct {
	// NATSStreamStorageType is File or Memory. With Memory, events are lost when all servers
	// restart.
	// +kubebuilder:default=File
	// +optional
	NATSStreamStorageType StorageType `json:"natsStreamStorageType,omitempty"`

	// NATSStreamReplicas is the number of NATS servers, and of copies of each event: 1, 3 or 5.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Enum=1;3;5
	// +optional
	NATSStreamReplicas int32 `json:"natsStreamReplicas,omitempty"`

	// NATSStreamMaxSize is the size of all events that are stored. A full stream refuses events.
	// +kubebuilder:default="700Mi"
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('1Mi'))",message="natsStreamMaxSize must be more than 1Mi"
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Pi')) <= 0",message="natsStreamMaxSize must be at most 1Pi"
	// +optional
	NATSStreamMaxSize resource.Quantity `json:"natsStreamMaxSize,omitempty"`

	// NATSMaxMsgsPerTopic is the number of events of one type of one source that are stored. More
	// are refused.
	// +kubebuilder:default=1000000
	// +kubebuilder:validation:Minimum=1
	// +optional
	NATSMaxMsgsPerTopic int64 `json:"natsMaxMsgsPerTopic,omitempty"`

	// NATSStorage is the volume of each NATS server, with natsStreamStorageType File.
	// +kubebuilder:default={}
	// +optional
	NATSStorage Storage `json:"natsStorage,omitempty"`

	// NATSPriorityClassName is the PriorityClass of each NATS server; empty is the cluster's
	// default.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	NATSPriorityClassName string `json:"natsPriorityClassName,omitempty"`

	// NATSSpread says how the pods are spread over nodes and zones: Preferred where that is
	// possible, None not at all.
	// +kubebuilder:default=Preferred
	// +optional
	NATSSpread Spread `json:"natsSpread,omitempty"`

	// NATSResources are those of each NATS server.
	// +kubebuilder:default={requests: {cpu: "40m", memory: "64Mi"}, limits: {cpu: "500m", memory: "1Gi"}}
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || size(self.claims) == 0",message="claims cannot be used: the pods have no claims"
	// +kubebuilder:validation:XValidation:rule="(!has(self.limits) || size(self.limits) == size(['cpu', 'memory', 'ephemeral-storage'].filter(k, k in self.limits))) && (!has(self.requests) || size(self.requests) == size(['cpu', 'memory', 'ephemeral-storage'].filter(k, k in self.requests)))",message="resources must be cpu, memory or ephemeral-storage"
	// +kubebuilder:validation:XValidation:rule="['cpu', 'memory', 'ephemeral-storage'].all(k, (!has(self.limits) || !(k in self.limits) || quantity(string(self.limits[k])).compareTo(quantity('0')) >= 0) && (!has(self.requests) || !(k in self.requests) || quantity(string(self.requests[k])).compareTo(quantity('0')) >= 0))",message="quantities must not be negative"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.requests) || !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",message="requests must not be more than limits"
	// +optional
	NATSResources corev1.ResourceRequirements `json:"natsResources,omitempty"`

	// DeadLetterSink is a URL that gets the events that a sink does not take. On NATS, an event
	// that it does not take, either, is stored as without it. On the mesh, the client is told, as
	// without it.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?://([-A-Za-z0-9._~!&'()*+,;=:%]+@)?([A-Za-z0-9_][-A-Za-z0-9._]*|[[][0-9A-Fa-f:.]+[]])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?([/?][!-"%-~]*)?)?$`
	// +kubebuilder:validation:XValidation:rule="self == '' || isURL(self)",message="deadLetterSink must be http(s)://<host>[:port][/path]"
	// +optional
	DeadLetterSink string `json:"deadLetterSink,omitempty"`

	// DeadLetterAfter is how long after it was published an event is given up that its sink does
	// not take: it goes to deadLetterSink, or is stored as a dead letter. NATS only.
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^(0|([0-9]{1,6}([.][0-9]{1,9})?h)?([0-9]{1,6}([.][0-9]{1,9})?m)?([0-9]{1,6}([.][0-9]{1,9})?s)?([0-9]{1,6}([.][0-9]{1,9})?ms)?([0-9]{1,6}([.][0-9]{1,9})?(us|µs))?([0-9]{1,6}([.][0-9]{1,9})?ns)?)$`
	// +kubebuilder:validation:MinLength=1
	// +optional
	DeadLetterAfter metav1.Duration `json:"deadLetterAfter,omitempty"`

	// DeadLetterMaxSize is the size of all dead letters that are stored in NATS. When it is
	// reached, no event is given up any more: those that sinks refuse wait where they are. NATS
	// only.
	// +kubebuilder:default="64Mi"
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('2Mi')) >= 0",message="deadLetterMaxSize must be at least 2Mi"
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Pi')) <= 0",message="deadLetterMaxSize must be at most 1Pi"
	// +optional
	DeadLetterMaxSize resource.Quantity `json:"deadLetterMaxSize,omitempty"`

	// DeadLetterMaxAge is how long a dead letter is kept, from 1h. 0 keeps it until somebody
	// delivers or deletes it. NATS only.
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,5}h([0-9]{1,6}m)?([0-9]{1,6}s)?)$`
	// +kubebuilder:validation:MinLength=1
	// +optional
	DeadLetterMaxAge metav1.Duration `json:"deadLetterMaxAge,omitempty"`

	// EventMeshSecret is <namespace>/<name> of a Secret for SAP Event Mesh, which this operator
	// does not support: the object is accepted, and the condition BackendAvailable says
	// BackendNotSupported.
	// +kubebuilder:validation:MaxLength=507
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	// +optional
	EventMeshSecret string `json:"eventMeshSecret,omitempty"`

	// EventTypePrefix is accepted, and used for no backend of this operator.
	// +kubebuilder:default=sap.kyma.custom
	// +kubebuilder:validation:MaxLength=253
	// +optional
	EventTypePrefix string `json:"eventTypePrefix,omitempty"`

	// Domain is accepted, and used for no backend of this operator.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Domain string `json:"domain,omitempty"`
}

// Storage is the volume of a NATS server.
type Storage struct {
	// Size is at least 1.2 times natsStreamMaxSize.
	// +kubebuilder:default="1Gi"
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0')) && quantity(string(self)).compareTo(quantity('1Pi')) <= 0",message="size must be more than 0 and at most 1Pi"
	// +optional
	Size resource.Quantity `json:"size,omitempty"`

	// StorageClassName is the StorageClass; empty is the cluster's default.
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	StorageClassName string `json:"storageClassName"`

	// Retention says whether the volumes stay (Retain) or are deleted (Delete) when NATS is
	// removed. They are deleted only when no event is left in them.
	// +kubebuilder:default=Retain
	// +optional
	Retention Retention `json:"retention,omitempty"`

	// Sync is Always or Interval.
	// +kubebuilder:default=Always
	// +optional
	Sync Sync `json:"sync,omitempty"`
}

// Publisher is the server that takes events.
type Publisher struct {
	// +kubebuilder:default={}
	// +optional
	Replicas Replicas `json:"replicas,omitempty"`

	// +kubebuilder:default={requests: {cpu: "40m", memory: "64Mi"}, limits: {cpu: "500m", memory: "512Mi"}}
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || size(self.claims) == 0",message="claims cannot be used: the pods have no claims"
	// +kubebuilder:validation:XValidation:rule="(!has(self.limits) || size(self.limits) == size(['cpu', 'memory', 'ephemeral-storage'].filter(k, k in self.limits))) && (!has(self.requests) || size(self.requests) == size(['cpu', 'memory', 'ephemeral-storage'].filter(k, k in self.requests)))",message="resources must be cpu, memory or ephemeral-storage"
	// +kubebuilder:validation:XValidation:rule="['cpu', 'memory', 'ephemeral-storage'].all(k, (!has(self.limits) || !(k in self.limits) || quantity(string(self.limits[k])).compareTo(quantity('0')) >= 0) && (!has(self.requests) || !(k in self.requests) || quantity(string(self.requests[k])).compareTo(quantity('0')) >= 0))",message="quantities must not be negative"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.requests) || !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",message="requests must not be more than limits"
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// PriorityClassName is the PriorityClass of the publisher's pods; empty is the cluster's
	// default.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Spread says how the pods are spread over nodes and zones: Preferred where that is possible,
	// None not at all.
	// +kubebuilder:default=Preferred
	// +optional
	Spread Spread `json:"spread,omitempty"`
}

// Replicas are the bounds of the number of pods. If they are equal, there is no
// HorizontalPodAutoscaler.
//
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || self.min <= self.max",message="min must not be greater than max"
type Replicas struct {
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Min int32 `json:"min,omitempty"`
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Max int32 `json:"max,omitempty"`
}

// Controller delivers events.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || !has(self.replicas) || self.replicas <= self.maxReplicas",message="replicas must not be greater than maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || (has(self.replicas) && self.replicas == self.maxReplicas) || (has(self.resources) && [has(self.resources.limits) && 'cpu' in self.resources.limits ? string(self.resources.limits['cpu']) : '0', has(self.resources.requests) && 'cpu' in self.resources.requests ? string(self.resources.requests['cpu']) : '0'].exists(q, quantity(q).compareTo(quantity('0')) > 0))",message="maxReplicas needs resources.limits.cpu or resources.requests.cpu: pods are added when they use most of that"
type Controller struct {
	// Replicas is the number of pods, or the smallest one if maxReplicas is greater. Each of them
	// delivers.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// MaxReplicas is the greatest number of pods. If it is greater than replicas, a
	// HorizontalPodAutoscaler adds pods when they use more than 60 % of their limit of CPU, or of
	// what they request if there is no limit. Without it, the number is replicas.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxReplicas int32 `json:"maxReplicas,omitempty"`

	// +kubebuilder:default={requests: {cpu: "40m", memory: "64Mi"}, limits: {cpu: "500m", memory: "512Mi"}}
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || size(self.claims) == 0",message="claims cannot be used: the pods have no claims"
	// +kubebuilder:validation:XValidation:rule="(!has(self.limits) || size(self.limits) == size(['cpu', 'memory', 'ephemeral-storage'].filter(k, k in self.limits))) && (!has(self.requests) || size(self.requests) == size(['cpu', 'memory', 'ephemeral-storage'].filter(k, k in self.requests)))",message="resources must be cpu, memory or ephemeral-storage"
	// +kubebuilder:validation:XValidation:rule="['cpu', 'memory', 'ephemeral-storage'].all(k, (!has(self.limits) || !(k in self.limits) || quantity(string(self.limits[k])).compareTo(quantity('0')) >= 0) && (!has(self.requests) || !(k in self.requests) || quantity(string(self.requests[k])).compareTo(quantity('0')) >= 0))",message="quantities must not be negative"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.requests) || !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",message="requests must not be more than limits"
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// PriorityClassName is the PriorityClass of the controller's pods; empty is the cluster's
	// default.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Spread says how the pods are spread over nodes and zones: Preferred where that is possible,
	// None not at all.
	// +kubebuilder:default=Preferred
	// +optional
	Spread Spread `json:"spread,omitempty"`
}

// Bounds are those of the number of pods. If they are equal, there is no HorizontalPodAutoscaler.
func (c *Controller) Bounds() Replicas {
	return Replicas{Min: c.Replicas, Max: max(c.Replicas, c.MaxReplicas)}
}

// Logging is how much is logged.
type Logging struct {
	// +kubebuilder:default=Info
	// +kubebuilder:validation:Enum=Debug;Info;Warn;Error
	// +optional
	LogLevel string `json:"logLevel,omitempty"`
}

// Tracing is where spans of events are sent. An event has spans if the trace that its client names
// is sampled.
type Tracing struct {
	// Endpoint is a receiver for OTLP over HTTP, such as http://collector.tracing:4318. Empty: no
	// spans are made.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?://([A-Za-z0-9_][-A-Za-z0-9._]*|[[][0-9A-Fa-f:.]+[]])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[-A-Za-z0-9._~/%]*)?)?$`
	// +kubebuilder:validation:XValidation:rule="self == '' || isURL(self)",message="endpoint must be http(s)://<host>[:port][/path]"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
}

// OTLPEndpoint is where spans are sent; "" if there are none.
func (s *EventingSpec) OTLPEndpoint() string {
	if s.Tracing == nil {
		return ""
	}
	return s.Tracing.Endpoint
}

// EventingStatus is what the operator has observed. Nothing decides by it: each step is decided by
// the cluster.
type EventingStatus struct {
	// State is Ready, Processing, Warning, Error or Deleting.
	// +optional
	State State `json:"state,omitempty"`

	// ObservedGeneration is the metadata.generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ActiveBackend is where an event that is accepted now goes: NATS, EventMesh or nowhere.
	// +optional
	ActiveBackend BackendType `json:"activeBackend,omitempty"`

	// SpecHash is a hash (FNV-1a, 64 bits) of spec.backend.
	// +optional
	SpecHash int64 `json:"specHash,omitempty"`

	// PublisherService is <name>.<namespace> of the Service that takes events.
	// +optional
	PublisherService string `json:"publisherService,omitempty"`

	// Serving are the backends that deliver now, sorted.
	// +listType=set
	// +optional
	Serving []BackendType `json:"serving,omitempty"`

	// Switch is the change of the backend that is under way.
	// +optional
	Switch *Switch `json:"switch,omitempty"`

	// NATS is what the stream holds.
	// +optional
	NATS *NATSStatus `json:"nats,omitempty"`

	// Version is that of the operator that wrote this.
	// +optional
	Version string `json:"version,omitempty"`

	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Switch is a change of the backend. It is a report, and never read back.
type Switch struct {
	From BackendType `json:"from"`
	To   BackendType `json:"to"`
	// Step is the reason of the condition Switching.
	Step  string      `json:"step"`
	Since metav1.Time `json:"since"`
	// Pending is the number of events that the backend that is left still holds.
	// +optional
	Pending int64 `json:"pending,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// NATSStatus is what the stream holds.
type NATSStatus struct {
	Messages int64 `json:"messages"`
	// Bytes are those of the stored events.
	Bytes int64 `json:"bytes"`
	// DeadLetters is the number of events that were given up and are stored.
	// +optional
	DeadLetters int64 `json:"deadLetters,omitempty"`
	// Servers is the number of servers that are ready.
	Servers int32       `json:"servers"`
	Storage StorageType `json:"storage"`
}
