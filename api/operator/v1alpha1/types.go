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
	// ForceDeletionAnnotation with the value "true" lets the deletion go on although events may be lost.
	ForceDeletionAnnotation = "eventing.kyma-project.io/force-deletion"
	// ForceTeardownAnnotation lets a switch go on although the backend that is left holds events that nobody took. Its
	// value is <backend>/<status.switch.since>, so that an old value does nothing.
	ForceTeardownAnnotation = "eventing.kyma-project.io/force-teardown"
)

// BackendType is a backend as it is spelled in an object. Both the old spelling ("nats", "eventmesh") and the new one ("NATS",
// "EventMesh") are accepted. Compare what Canonical returns.
//
// +kubebuilder:validation:Enum=nats;eventmesh;NATS;EventMesh;""
type BackendType string

// The backends, in canonical spelling.
const (
	NATS      BackendType = "NATS"
	EventMesh BackendType = "EventMesh"
)

// Canonical is NATS, EventMesh, or "" for none. A spelling that the API server would refuse is returned as it is.
func (b BackendType) Canonical() BackendType {
	for _, known := range []BackendType{NATS, EventMesh} {
		if strings.EqualFold(string(b), string(known)) {
			return known
		}
	}
	return b
}

// Other is the other backend of a switch. Other of none is none.
func (b BackendType) Other() BackendType {
	switch b.Canonical() {
	case NATS:
		return EventMesh
	case EventMesh:
		return NATS
	default:
		return ""
	}
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
	// SyncAlways writes each event to the disk before it is acknowledged. No event is lost if the node fails.
	SyncAlways Sync = "Always"
	// SyncInterval writes to the disk every 10 seconds. It is faster, and a node that fails loses up to 10 seconds.
	SyncInterval Sync = "Interval"
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

	// Annotations are added to every object that the operator creates.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// Labels are added to every object that the operator creates. The operator's own labels win.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// Backend is a backend and its settings. What depends on the size of NATS cannot change while NATS is the backend, before and
// after the change: a stream does not change its storage, and a server's stream does not move into a cluster of servers.
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

// BackendConfig is how the backends are installed. Rules begin with has() because the API server checks the default {} before
// it fills in the defaults inside.
//
// +kubebuilder:validation:XValidation:rule="!has(self.natsStorage) || !has(self.natsStorage.size) || self.natsStreamStorageType != 'File' || quantity(string(self.natsStorage.size)).asApproximateFloat() * 5.0 >= quantity(string(self.natsStreamMaxSize)).asApproximateFloat() * 6.0",message="natsStorage.size must be at least 1.2 times natsStreamMaxSize"
type BackendConfig struct {
	// NATSStreamStorageType is File or Memory. With Memory, events are lost when all servers restart.
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
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('1Mi'))",message="natsStreamMaxSize must be more than 1Mi"
	// +optional
	NATSStreamMaxSize resource.Quantity `json:"natsStreamMaxSize,omitempty"`

	// NATSMaxMsgsPerTopic is the number of events of one type of one source that are stored. More are refused.
	// +kubebuilder:default=1000000
	// +kubebuilder:validation:Minimum=1
	// +optional
	NATSMaxMsgsPerTopic int64 `json:"natsMaxMsgsPerTopic,omitempty"`

	// NATSStorage is the volume of each NATS server, with natsStreamStorageType File.
	// +kubebuilder:default={}
	// +optional
	NATSStorage Storage `json:"natsStorage,omitempty"`

	// NATSResources are those of each NATS server.
	// +kubebuilder:default={requests: {cpu: "40m", memory: "64Mi"}, limits: {cpu: "500m", memory: "1Gi"}}
	// +optional
	NATSResources corev1.ResourceRequirements `json:"natsResources,omitempty"`

	// DeadLetterSink is a URL that gets the events that a sink does not take.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?://.+)?$`
	// +optional
	DeadLetterSink string `json:"deadLetterSink,omitempty"`

	// DeadLetterAfter is how long an event is tried before it goes to deadLetterSink. NATS only.
	// +kubebuilder:default="24h"
	// +optional
	DeadLetterAfter metav1.Duration `json:"deadLetterAfter,omitempty"`

	// EventMeshSecret is <namespace>/<name> of a Secret for SAP Event Mesh, which this operator does not support: the object is
	// accepted, and the condition BackendAvailable says BackendNotSupported.
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
	// +optional
	Size resource.Quantity `json:"size,omitempty"`

	// StorageClassName is the StorageClass; empty is the cluster's default.
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +optional
	StorageClassName string `json:"storageClassName"`

	// Retention says whether the volumes stay (Retain) or are deleted (Delete) when NATS is removed. They are deleted only when no
	// event is left in them.
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
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
}

// Replicas are the bounds of the number of pods. If they are equal, there is no HorizontalPodAutoscaler.
//
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || self.min <= self.max",message="min must not be greater than max"
type Replicas struct {
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +optional
	Min int32 `json:"min,omitempty"`
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +optional
	Max int32 `json:"max,omitempty"`
}

// Controller delivers events.
type Controller struct {
	// Replicas is the number of pods. One of them delivers, the others wait to take over.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// +kubebuilder:default={requests: {cpu: "40m", memory: "64Mi"}, limits: {cpu: "500m", memory: "512Mi"}}
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
}

// Logging is how much is logged.
type Logging struct {
	// +kubebuilder:default=Info
	// +kubebuilder:validation:Enum=Debug;Info;Warn;Error
	// +optional
	LogLevel string `json:"logLevel,omitempty"`
}

// EventingStatus is what the operator has observed. Nothing decides by it: each step is decided by the cluster.
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
	// Servers is the number of servers that are ready.
	Servers int32       `json:"servers"`
	Storage StorageType `json:"storage"`
}
