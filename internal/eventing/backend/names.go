package backend

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
)

const (
	// DefaultPrefix is the prefix of all names unless the operator is told another one.
	DefaultPrefix = "eventing"
	// Operator is what the operator calls itself in labels, Events and as owner of fields.
	Operator = "eventing-manager"

	// PlaneLabel says that an object is ours, with the label InstanceLabel: Kyma's own operator
	// uses the same names and the same other labels.
	PlaneLabel = "eventing.kyma-project.io/plane"
	// InstanceLabel has the prefix: several operators may share a namespace.
	InstanceLabel = "eventing.kyma-project.io/instance"
	// PodInstanceLabel has the prefix, too. Selectors of pods have it, which cannot change, so it
	// is on pods. Nothing else has it any more: a tool for deployments takes what has this label
	// and no owner as its own, and deletes it
	// (docs/decisions/1004-how-the-eventing-operator-acts.md).
	PodInstanceLabel = "app.kubernetes.io/instance"
	// BackendLabel is on the pods of the publisher: the backend that they send to.
	BackendLabel = "eventing.kyma-project.io/backend"

	// ValuesAnnotation has the values with which an object was rendered, so that a backend that is
	// left is not rendered from a spec that says something else by now.
	ValuesAnnotation = "eventing.kyma-project.io/values"
	// TriggerFinalizer keeps a Trigger that somebody deletes, and with it what Knative has made for
	// it, until another Trigger has taken over.
	TriggerFinalizer = "eventing.kyma-project.io/trigger"
	// EpochAnnotation has the epoch in which an object was last wanted.
	EpochAnnotation = "eventing.kyma-project.io/epoch"
	// TriggerParameter is in the query of what the mesh posts to the controller: what tells the
	// Trigger from an earlier one of its name.
	TriggerParameter = "trigger"
	// EventsPath is where the Trigger posts each event to the controller: spec.subscriber of the
	// Trigger.
	EventsPath = "/events"
	// DeadLetterPath is where the Broker posts to the controller what was not taken after all
	// tries: delivery.deadLetterSink of the Broker.
	DeadLetterPath = "/dead-letter"
	// ProbeAttribute is in a probe of the mesh, which goes to no sink, and TimeAttribute has the
	// time of an event as the client wrote it, which Knative changes to UTC. Names that begin so
	// are Knative's, and the publisher takes none of them from clients.
	ProbeAttribute = "knativekymaprobe"
	TimeAttribute  = "knativekymatime"
	// ServersAnnotation is on the volume claims of NATS: the number of servers that they were
	// created for.
	ServersAnnotation = "eventing.kyma-project.io/servers"
)

// Plane is the part of the installation that an object belongs to.
type Plane string

// The planes.
const (
	PlaneNATS   Plane = "nats"
	PlaneMesh   Plane = "eventmesh"
	PlaneShared Plane = "shared"
)

// PlaneOf is the plane of a backend: its name in small letters. It is "" of none.
func PlaneOf(b operatorv1alpha1.BackendType) Plane { return Plane(strings.ToLower(string(b))) }

// isPlane tells whether a label names the plane of a backend, or the one that all share.
func isPlane(p Plane) bool {
	return p == PlaneShared || slices.ContainsFunc(operatorv1alpha1.BackendTypes, func(b operatorv1alpha1.BackendType) bool { return PlaneOf(b) == p })
}

// Names are the names of objects with one prefix. The zero value is no prefix: use DefaultPrefix.
type Names string

// NATS is the StatefulSet, its Service for clients and its PodDisruptionBudget.
func (n Names) NATS() string { return string(n) + "-nats" }

// NATSHeadless is the Service that gives each NATS server a name.
func (n Names) NATSHeadless() string { return string(n) + "-nats-headless" }

// NATSConfig is the ConfigMap with the configuration of the servers, and the evidence that the
// stream was drained.
func (n Names) NATSConfig() string { return string(n) + "-nats-config" }

// NATSUsers is the Secret with the seeds of the users.
func (n Names) NATSUsers() string { return string(n) + "-nats-users" }

// NATSCA is the Secret with the CA that signs the certificates of the servers.
func (n Names) NATSCA() string { return string(n) + "-nats-ca" }

// NATSTLS is the Secret with the certificate of the servers.
func (n Names) NATSTLS() string { return string(n) + "-nats-tls" }

// NATSClaimPrefix begins the name of each volume claim; the ordinal of the pod follows.
func (n Names) NATSClaimPrefix() string { return "data-" + n.NATS() + "-" }

// Broker is the Broker of the mesh.
func (n Names) Broker() string { return string(n) }

// BrokerChannel is the Channel that Knative makes for the Triggers of the Broker.
func (n Names) BrokerChannel() string { return n.Broker() + "-kne-trigger" }

// Triggers are the names of the one that leads all events of the Broker to the controller. It has
// the second one while something else has the first one.
func (n Names) Triggers() []string {
	return []string{string(n) + "-controller", string(n) + "-controller-2"}
}

// ControllerRoster is the ConfigMap in which the controllers that serve the mesh tell each other
// what they know. The operator creates it.
func (n Names) ControllerRoster() string { return string(n) + "-controller-roster" }

// Publisher is the Deployment of the publisher, its Service and its autoscaler.
func (n Names) Publisher() string { return string(n) + "-publisher-proxy" }

// Controller is the Deployment of the controller, its Service and its autoscaler.
func (n Names) Controller() string { return string(n) + "-controller" }

// Backends is the ConfigMap that the operator writes and the others read.
func (n Names) Backends() string { return string(n) + "-backends" }

// ControllerState is the ConfigMap that the controller writes and the operator reads.
func (n Names) ControllerState() string { return string(n) + "-controller-state" }

// Owner is what the operator calls itself as owner of fields.
func (n Names) Owner() string {
	if n == DefaultPrefix {
		return Operator
	}
	return Operator + "-" + string(n)
}

// Marks is the owner of the fields that the operator patches, and does not apply, and of a number
// of pods until an autoscaler sets it.
func (n Names) Marks() string { return n.Owner() + "-marks" }

// ManagerLease is the Lease of the operator.
func (n Names) ManagerLease() string { return string(n) + "-manager.kyma-project.io" }

// ManagerPage is the ConfigMap that says where the page of the operator is. The chart creates it,
// and the operator that leads writes it.
func (n Names) ManagerPage() string { return string(n) + "-manager-page" }

// ControllerLease is the Lease of the controller.
func (n Names) ControllerLease() string { return string(n) + "-controller.kyma-project.io" }

// Ours tells by its labels whether an object belongs to the operator with this prefix. One that an
// earlier version has created has the prefix in PodInstanceLabel, as pods have.
func (n Names) Ours(labels map[string]string) bool {
	instance, ok := labels[InstanceLabel]
	if !ok {
		instance = labels[PodInstanceLabel]
	}
	return isPlane(Plane(labels[PlaneLabel])) && instance == string(n)
}

// Former tells whether an object has the label by which an earlier version found it, and tools for
// deployments find what they may delete.
func (n Names) Former(labels map[string]string) bool { return labels[PodInstanceLabel] == string(n) }

// Extra are labels of an administrator without those that a tool for deployments claims: what has
// them, it may delete.
func Extra(labels map[string]operatorv1alpha1.LabelValue) map[string]string {
	all := map[string]string{}
	for key, value := range labels {
		if !k8sobject.IsClaimed(key) {
			all[key] = string(value)
		}
	}
	return all
}

// Labels are those of an object of a plane. extra are the administrator's: ours win.
func (n Names) Labels(plane Plane, component, version string, extra map[string]operatorv1alpha1.LabelValue) map[string]string {
	all := Extra(extra)
	maps.Copy(all, map[string]string{
		"app.kubernetes.io/name":       component,
		InstanceLabel:                  string(n),
		"app.kubernetes.io/component":  component,
		"app.kubernetes.io/part-of":    Operator,
		"app.kubernetes.io/managed-by": Operator,
		"app.kubernetes.io/created-by": Operator,
		"app.kubernetes.io/version":    version,
		"kyma-project.io/dashboard":    "eventing",
		PlaneLabel:                     string(plane),
	})
	return all
}

// ConsumerName is the name of the durable consumer of a Subscription.
func ConsumerName(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return hex.EncodeToString(sum[:16])
}
