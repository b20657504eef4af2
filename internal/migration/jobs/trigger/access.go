package trigger

import (
	"slices"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var _ migration.Accessor = (*Job)(nil)

// Access implements migration.Accessor.
func (j *Job) Access() []migration.Access {
	in, system := j.options.integrationNamespace, kyma.SystemNamespace
	const (
		connector = "applicationconnector.kyma-project.io"
		eventing  = "eventing.knative.dev"
		messaging = "messaging.knative.dev"
		rbac      = "rbac.authorization.k8s.io"
		// v1alpha1 is what makes Knative create the Broker of a labelled namespace.
		v1, v1alpha1 = "v1", "v1alpha1"
	)
	created := []string{"get", "list", "watch", "create", "delete"}
	deleted := []string{"get", "list", "watch", "create", "delete", "patch"}
	reads, removed := []string{"list", "watch"}, []string{"get", "delete"}
	const undone = "what Knative makes upon the label; a rollback removes it"
	return slices.Concat(migration.WorkloadAccess(in, "whether the event-services have switched"), []migration.Access{
		{Resource: "namespaces", Verbs: []string{"list"}, Why: "which are left out, and which are labelled for a Broker"},
		{Group: connector, Resource: "applications", Verbs: []string{"list"}, Why: "whether events of a source can come through the mesh"},
		{Group: connector, Resource: "eventactivations", Verbs: []string{"list", "watch"}, Why: "whether the mesh brings the events to a namespace"},
		{Group: "eventing.kyma-project.io", Resource: "subscriptions", Verbs: deleted, Why: "deleted once their Trigger delivers; rollback and undo restore them"},
		{Group: eventing, Resource: "triggers", Verbs: deleted, Why: "created, and changed if their Subscription is edited; deleted again by rollback and undo"},
		{Group: eventing, Resource: "brokers", Verbs: created, Knative: v1, Why: "created; deleted again by rollback and undo"},
		{Group: eventing, Resource: "brokers", Verbs: slices.Concat(reads, removed), Knative: v1alpha1, Why: undone},
		{Resource: "namespaces", Verbs: []string{"get", "patch"}, Knative: v1alpha1, Why: "labels them, so that Knative makes a Broker"},
		{Resource: "serviceaccounts", Verbs: reads, Knative: v1alpha1, Why: undone},
		{Resource: "serviceaccounts", Names: kyma.BrokerAccounts(), Verbs: removed, Knative: v1alpha1, Why: undone},
		{Group: rbac, Resource: "rolebindings", Verbs: reads, Knative: v1alpha1, Why: undone},
		{Group: rbac, Resource: "rolebindings", Names: kyma.BrokerAccounts(), Verbs: removed, Knative: v1alpha1, Why: undone},
		// eventing-config-reader-<namespace>-<account>: the namespaces are not known before.
		{Group: rbac, Resource: "rolebindings", Namespace: kyma.EventingNamespace, Verbs: removed, Knative: v1alpha1, Why: undone},

		{Group: "sources.kyma-project.io", Resource: "httpsources", Namespace: in, Verbs: []string{"list"}, Why: "whether the mesh takes the events"},
		{Group: messaging, Resource: "channels", Namespace: in, Verbs: []string{"list"}, Why: "whether the mesh takes the events"},
		{Group: messaging, Resource: "subscriptions", Namespace: in, Verbs: []string{"list", "watch"}, Why: "whether the mesh brings the events to a namespace"},
		{Group: "serving.knative.dev", Resource: "services", Namespace: in, Verbs: []string{"list"}, Why: "whether the mesh takes the events"},

		{Group: "apps", Resource: "deployments", Namespace: system, Names: []string{kyma.SubscriptionController}, Verbs: []string{"get", "patch"}, Why: "scales the subscription-controller to 0 while it does its part, and back"},
		{Group: "apps", Resource: "deployments", Namespace: system, Verbs: []string{"list", "watch"}, Why: "whether the subscription-controller runs"},
		{Group: "apps", Resource: "replicasets", Namespace: system, Verbs: []string{"list", "watch"}, Why: "whether the subscription-controller runs"},
		{Resource: "pods", Namespace: system, Verbs: []string{"list", "watch"}, Why: "whether the subscription-controller runs"},
		{Group: messaging, Resource: "channels", Namespace: system, Verbs: deleted, Why: "cleans up after a Subscription if the subscription-controller does not run"},
		{Group: messaging, Resource: "subscriptions", Namespace: system, Verbs: deleted, Why: "cleans up after a Subscription if the subscription-controller does not run"},
		{Resource: "pods", Namespace: kyma.NATSNamespace, Verbs: []string{"list"}, Why: "what is in flight"},
		{Resource: "pods/proxy", Namespace: kyma.NATSNamespace, Names: []string{kyma.NATSMonitoring(kyma.NATSPod)}, Verbs: []string{"get"}, Why: "what is in flight"},
		migration.EventAccess(""),
	})
}
