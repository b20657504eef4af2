package serviceinstance

import (
	"slices"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var _ migration.Accessor = (*Job)(nil)

// Access implements migration.Accessor.
func (j *Job) Access() []migration.Access {
	in := j.options.integrationNamespace
	const (
		connector = "applicationconnector.kyma-project.io"
		catalog   = "servicecatalog.k8s.io"
		eventing  = "eventing.knative.dev"
		messaging = "messaging.knative.dev"
		rbac      = "rbac.authorization.k8s.io"
		v1        = "v1"
		v1alpha1  = "v1alpha1"
	)
	recreated := []string{"get", "list", "watch", "create", "delete", "patch"}
	created := []string{"get", "list", "watch", "create", "delete"}
	reads, removed := []string{"list", "watch"}, []string{"get", "delete"}
	const (
		candidates = "which instances are of a service with events"
		again      = "deleted and created again, where no repair can help"
		undone     = "what Knative makes upon the label; a rollback removes it"
	)
	return slices.Concat(migration.WorkloadAccess(in, "whether the event-services have switched"), []migration.Access{
		{Group: catalog, Resource: "serviceinstances", Verbs: recreated, Why: again},
		{Group: catalog, Resource: "servicebindings", Verbs: recreated, Why: again},
		{Group: "servicecatalog.kyma-project.io", Resource: "servicebindingusages", Verbs: recreated, Why: again},
		{Group: catalog, Resource: "serviceclasses", Verbs: []string{"list", "watch"}, Why: candidates},
		{Group: catalog, Resource: "serviceplans", Verbs: []string{"list"}, Why: candidates},
		{Group: catalog, Resource: "servicebrokers", Verbs: []string{"list"}, Why: "whether what is deleted could come back"},
		{Group: connector, Resource: "applications", Verbs: []string{"list"}, Why: candidates},
		{Group: connector, Resource: "applicationmappings", Verbs: []string{"list"}, Why: "whether what is deleted could come back"},

		{Group: connector, Resource: "eventactivations", Verbs: recreated, Why: "created, or given the right owner, where an instance lacks it"},
		{Group: messaging, Resource: "subscriptions", Namespace: in, Verbs: created, Why: "created where an instance lacks it"},
		{Group: messaging, Resource: "channels", Namespace: in, Verbs: []string{"list"}, Why: "what a Knative Subscription subscribes to"},
		{Group: eventing, Resource: "brokers", Verbs: created, Knative: v1, Why: "created where a namespace has none; deleted again by rollback and undo"},
		{Group: eventing, Resource: "triggers", Verbs: []string{"list"}, Why: "who uses a Broker that a rollback or undo would delete"},
		{Group: eventing, Resource: "brokers", Verbs: slices.Concat(reads, removed), Knative: v1alpha1, Why: undone},
		{Group: "authentication.istio.io", Resource: "policies", Verbs: []string{"get", "list", "create", "delete"}, Served: "authentication.istio.io/v1alpha1", Why: "created where application-broker of 1.11 would"},
		{Resource: "namespaces", Verbs: []string{"get", "list", "watch", "patch"}, Why: "which are left out; labelled where an instance lacks that"},
		{Resource: "serviceaccounts", Verbs: reads, Knative: v1alpha1, Why: undone},
		{Resource: "serviceaccounts", Names: kyma.BrokerAccounts(), Verbs: removed, Knative: v1alpha1, Why: undone},
		{Group: rbac, Resource: "rolebindings", Verbs: reads, Knative: v1alpha1, Why: undone},
		{Group: rbac, Resource: "rolebindings", Names: kyma.BrokerAccounts(), Verbs: removed, Knative: v1alpha1, Why: undone},
		// eventing-config-reader-<namespace>-<account>: the namespaces are not known before.
		{Group: rbac, Resource: "rolebindings", Namespace: kyma.EventingNamespace, Verbs: removed, Knative: v1alpha1, Why: undone},

		{Group: "apps", Resource: "deployments", Namespace: in, Verbs: []string{"get", "watch"}, Why: "restarts application-broker, where it would refuse an instance permanently"},
		{Resource: "pods", Namespace: in, Verbs: []string{"get", "watch", "delete"}, Why: "restarts application-broker, where it would refuse an instance permanently"},
		{Group: "apps", Resource: "deployments", Namespace: kyma.SystemNamespace, Names: []string{kyma.SubscriptionController}, Verbs: []string{"get"}, Why: "whether an EventActivation could go"},
		migration.EventAccess(""),
	})
}
