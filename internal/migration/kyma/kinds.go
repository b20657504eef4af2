// Package kyma holds facts about the objects of Kyma 1.10 to 1.12, of the
// Knative they ran on and of Service Catalog: kinds and what installs them,
// names, labels, and how to read their shapes. It decides nothing and calls
// nothing.
package kyma

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
)

// The kinds of the event path. Versions are left to discovery: Kyma 1.11 served
// Knative's kinds at v1alpha1, today's clusters serve them at v1, and the fields
// read here are the same in both.
var (
	Application        = schema.GroupKind{Group: "applicationconnector.kyma-project.io", Kind: "Application"}
	ApplicationMapping = schema.GroupKind{Group: "applicationconnector.kyma-project.io", Kind: "ApplicationMapping"}
	EventActivation    = schema.GroupKind{Group: "applicationconnector.kyma-project.io", Kind: "EventActivation"}

	// Subscription is Kyma's own, of the Event Bus.
	Subscription = schema.GroupKind{Group: "eventing.kyma-project.io", Kind: "Subscription"}
	HTTPSource   = schema.GroupKind{Group: "sources.kyma-project.io", Kind: "HTTPSource"}

	Channel = schema.GroupKind{Group: "messaging.knative.dev", Kind: "Channel"}
	// ChannelSubscription is Knative's Subscription, of a Channel.
	ChannelSubscription = schema.GroupKind{Group: "messaging.knative.dev", Kind: "Subscription"}
	// Service is a Knative Service; the HTTPSource adapter is one.
	Service = schema.GroupKind{Group: "serving.knative.dev", Kind: "Service"}

	ServiceInstance     = schema.GroupKind{Group: "servicecatalog.k8s.io", Kind: "ServiceInstance"}
	ServiceClass        = schema.GroupKind{Group: "servicecatalog.k8s.io", Kind: "ServiceClass"}
	ServicePlan         = schema.GroupKind{Group: "servicecatalog.k8s.io", Kind: "ServicePlan"}
	ServiceBroker       = schema.GroupKind{Group: "servicecatalog.k8s.io", Kind: "ServiceBroker"}
	ServiceBinding      = schema.GroupKind{Group: "servicecatalog.k8s.io", Kind: "ServiceBinding"}
	ServiceBindingUsage = schema.GroupKind{Group: "servicecatalog.kyma-project.io", Kind: "ServiceBindingUsage"}
)

// components names what installs each kind's CustomResourceDefinition.
var components = map[schema.GroupKind]string{
	Application:         "application-connector", // a crd-install hook of its chart
	ApplicationMapping:  "cluster-essentials",
	EventActivation:     "cluster-essentials",
	Subscription:        "cluster-essentials",
	HTTPSource:          "event-sources",
	Channel:             "knative-eventing",
	ChannelSubscription: "knative-eventing",
	knative.Broker:      knative.Component,
	knative.Trigger:     knative.Component,
	Service:             "knative-serving",
	ServiceInstance:     "service-catalog",
	ServiceClass:        "service-catalog",
	ServicePlan:         "service-catalog",
	ServiceBroker:       "service-catalog",
	ServiceBinding:      "service-catalog",
	ServiceBindingUsage: "cluster-essentials",
}

// Component returns the Kyma component that installs the kind, "" if that is
// not known.
func Component(gk schema.GroupKind) string { return components[gk] }

// StopMeshMigration is what to do while Kyma's own migration runs, beside the command that stops
// it.
const StopMeshMigration = "Wait until it has ended. Or remove the sub-chart mesh-namespaces-migration from the event-bus chart (docs/migration/migration-guide-1.11.md), and stop the Job."

// Install says what to do about a kind that is not served.
func Install(gk schema.GroupKind) string {
	if component := Component(gk); component != "" {
		return "Install the component " + component + "."
	}
	return "Install what serves " + gk.String() + "."
}
