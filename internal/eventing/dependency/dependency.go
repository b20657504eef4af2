// Package dependency defines the foreign kinds and objects that eventing requires or can use, and
// checks whether they exist.
package dependency

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
)

// Requirement is a kind of others that eventing needs or can use.
type Requirement struct {
	kind     schema.GroupVersionKind
	resource string
	// backend is the one that needs it; "" means each.
	backend operatorv1alpha1.BackendType
	// feature is what is missing without an optional kind; "" means that the kind is required.
	feature string
	// remedy is the next step of an administrator.
	remedy string
}

// CRD is the name of the CustomResourceDefinition.
func (r Requirement) CRD() string { return r.resource + "." + r.kind.Group }

// Requirements are all kinds of others. docs/eventing/README.md explains each.
var Requirements = []Requirement{
	{
		kind: eventingv1alpha2.GroupVersion.WithKind("Subscription"), resource: "subscriptions",
		remedy: "Apply the manifest of the operator again",
	},
	{
		kind: Broker, resource: "brokers",
		backend: operatorv1alpha1.EventMesh, remedy: "Install Knative Eventing",
	},
	{
		kind: Trigger, resource: "triggers",
		backend: operatorv1alpha1.EventMesh, remedy: "Install Knative Eventing",
	},
	{kind: ServiceMonitor, resource: "servicemonitors", feature: "metrics are not collected by Prometheus"},
	{kind: PeerAuthentication, resource: "peerauthentications", feature: "Istio is not told which ports of NATS and of the controller take connections without mTLS"},
}

// Presence says how a dependency is there.
type Presence int

// The presences.
const (
	// Served: at the version that eventing needs.
	Served Presence = iota
	// Soon: its definition is established, and discovery does not show it yet.
	Soon
	// Absent: there is none.
	Absent
	// WrongVersion: only at versions that eventing does not know.
	WrongVersion
	// Conflict: a kind of the same name has another shape.
	Conflict
)

// Dependency is what was found of a requirement.
type Dependency struct {
	// Name is what a message calls it: "API eventing.knative.dev/v1 Broker".
	Name     string
	Presence Presence
	// Versions are those that are served.
	Versions []string
	// Feature is set for an optional one.
	Feature string
	// Remedy is the next step of an administrator.
	Remedy string
	// AtOnce: it is an error without a time to wait for it.
	AtOnce bool
	// Kind is empty for a StorageClass.
	Kind schema.GroupVersionKind
}

// The kinds of the mesh.
var (
	Broker  = schema.GroupVersionKind{Group: "eventing.knative.dev", Version: "v1", Kind: "Broker"}
	Trigger = schema.GroupVersionKind{Group: "eventing.knative.dev", Version: "v1", Kind: "Trigger"}
)

// The optional kinds.
var (
	ServiceMonitor     = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}
	PeerAuthentication = schema.GroupVersionKind{Group: "security.istio.io", Version: "v1", Kind: "PeerAuthentication"}
)

// Judge finds the required dependency that keeps eventing from working, if there is one, and says
// what is skipped without the optional ones. soon: one is about to be served.
func Judge(all []Dependency) (wrong *Dependency, skipped []string, soon bool) {
	for i, dep := range all {
		switch {
		case dep.Presence == Served:
		case dep.Presence == Soon:
			soon = true
			if dep.Feature == "" && wrong == nil {
				wrong = &all[i]
			}
		case dep.Feature != "":
			skipped = append(skipped, fmt.Sprintf("%s is missing, so %s", dep.Name, dep.Feature))
		case wrong == nil || wrong.Presence == Soon:
			wrong = &all[i]
		}
	}
	return wrong, skipped, soon
}

// Reason is that of the condition. waiting: there is still time.
func (d Dependency) Reason(waiting bool) string {
	switch {
	case d.Presence == Conflict:
		return operatorv1alpha1.ReasonCRDConflict
	case d.Presence == WrongVersion:
		return operatorv1alpha1.ReasonWrongVersion
	case waiting || d.Presence == Soon:
		return operatorv1alpha1.ReasonWaiting
	}
	return operatorv1alpha1.ReasonMissing
}

// Message says what is wrong, and what to do.
func (d Dependency) Message() string {
	switch d.Presence {
	case WrongVersion:
		return fmt.Sprintf("%s is not served, only version %s. %s in a version that serves it.", d.Name, strings.Join(d.Versions, ", "), d.Remedy)
	case Conflict:
		return fmt.Sprintf("%s has another shape than eventing needs. %s.", d.Name, d.Remedy)
	default:
		return fmt.Sprintf("%s is missing. %s.", d.Name, d.Remedy)
	}
}
