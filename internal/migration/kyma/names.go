package kyma

import (
	"slices"
)

// Namespaces.
const (
	// SystemNamespace holds Kyma's core and the event sources controller.
	SystemNamespace = "kyma-system"
	// IntegrationNamespace holds what belongs to Applications: their Helm
	// releases, event-services, HTTPSources, Channels and adapters.
	IntegrationNamespace = "kyma-integration"
	// TillerNamespace is where Kyma's Tiller stores Helm 2 releases.
	TillerNamespace = "kube-system"
)

// systemNamespaces hold no workload of a user. The first ten are those that
// Kyma 1.11's own migration left alone; it forgot compass-system.
var systemNamespaces = []string{
	"istio-system",
	"knative-eventing",
	"knative-serving",
	"kube-node-lease",
	"kube-public",
	"kube-system",
	"kyma-installer",
	"kyma-integration",
	"kyma-system",
	"natss",
	"compass-system",
}

// SystemNamespaces returns the namespaces that belong to Kyma and to what it
// runs on.
func SystemNamespaces() []string { return append([]string(nil), systemNamespaces...) }

// LeftOut says which namespaces are no part of the migration: those of the system, and
// more, which may be nil.
func LeftOut(more func(namespace string) bool) func(namespace string) bool {
	return func(namespace string) bool {
		return slices.Contains(systemNamespaces, namespace) || more != nil && more(namespace)
	}
}

// What the jobs keep and mark in a cluster is called so.
const (
	// Program is the name of the Lease, and begins those of journals and reports. A later version
	// finds the state of an earlier one by it.
	Program = "eventmesh-migration"
	// StateNamespace holds the Lease, the journals and the reports, and nothing else.
	StateNamespace = "eventmesh-migration"
	// Domain begins labels and annotations.
	Domain = "eventmesh-migration.kyma-project.io"
	// MarkAnnotation is on every object that a run creates.
	MarkAnnotation = Domain + "/change"
)

// Labels.
const (
	// OptOutLabel with the value "true" takes an object, or everything in a
	// namespace, out of the migration.
	OptOutLabel = "eventmesh-migration.kyma-project.io/skip"
	// ApplicationNameLabel is on the Channel of an Application and on the
	// Knative Subscriptions that application-broker makes.
	ApplicationNameLabel = "application-name"
	// BrokerNamespaceLabel is on those Subscriptions, too.
	BrokerNamespaceLabel = "broker-namespace"
	// InjectionLabel with the value "enabled" on a namespace makes Knative
	// create the Broker "default" in it.
	InjectionLabel = "knative-eventing-injection"
)

// EventSourcesController is the Deployment in SystemNamespace that reconciles
// HTTPSources.
const EventSourcesController = "event-sources-controller-manager"

// What Helm 3 wants to see on an object before it takes it into a release.
const (
	HelmManagedByLabel             = "app.kubernetes.io/managed-by"
	HelmManagedBy                  = "Helm"
	HelmReleaseNameAnnotation      = "meta.helm.sh/release-name"
	HelmReleaseNamespaceAnnotation = "meta.helm.sh/release-namespace"
)

const eventServiceSuffix = "-event-service"

// EventServiceName is the name of an Application's event-service: of its
// Deployment and Service, of its container, and the value of its label "app".
func EventServiceName(application string) string { return application + eventServiceSuffix }
