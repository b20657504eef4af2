package purge

import "github.com/kyma-project/eventmesh-migration/pkg/migration"

var _ migration.Accessor = (*Job)(nil)

// Access implements migration.Accessor.
func (j *Job) Access() []migration.Access {
	bus := j.options.namespace
	rows := j.PlanAccess()
	if j.options.tillerNamespace != "" {
		rows = append(rows, migration.Access{Resource: "configmaps", Namespace: j.options.tillerNamespace, Verbs: []string{"list"}, Why: "whether Tiller's release of the Event Bus exists"})
	}
	return append(rows, []migration.Access{
		{Resource: "secrets", Namespace: bus, Verbs: []string{"list"}, Why: "whether Helm 3's release of the Event Bus exists"},
		{Group: "messaging.knative.dev", Resource: "channels", Namespace: bus, Verbs: []string{"get", "watch", "create", "delete", "patch"}, Why: "deleted; rollback and undo restore them"},
		{Group: "messaging.knative.dev", Resource: "subscriptions", Namespace: bus, Verbs: []string{"get", "watch", "create", "delete", "patch"}, Why: "deleted; rollback and undo restore them"},
		{Group: "applicationconnector.kyma-project.io", Resource: "eventactivations", Verbs: []string{"get", "patch"}, Why: "removes the finalizer of the subscription-controller"},
		{Group: "eventing.kyma-project.io", Resource: "subscriptions", Verbs: []string{"get", "patch"}, Why: "removes the finalizer of the subscription-controller"},
		{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Verbs: []string{"list", "watch", "create", "delete", "patch"}, Why: "that of Kyma Subscriptions goes last"},
		migration.EventAccess(""),
	}...)
}

// PlanAccess is what plan --ignore-release asks for: the gate before Kyma 1.12.
func (j *Job) PlanAccess() []migration.Access {
	bus := j.options.namespace
	return []migration.Access{
		{Group: "messaging.knative.dev", Resource: "channels", Namespace: bus, Verbs: []string{"list"}, Why: "what the Event Bus left"},
		{Group: "messaging.knative.dev", Resource: "subscriptions", Namespace: bus, Verbs: []string{"list"}, Why: "what the Event Bus left"},
		{Group: "applicationconnector.kyma-project.io", Resource: "eventactivations", Verbs: []string{"list"}, Why: "which have its finalizer"},
		{Group: "eventing.kyma-project.io", Resource: "subscriptions", Verbs: []string{"list"}, Why: "whether one still needs the Event Bus"},
		{Group: "eventing.knative.dev", Resource: "triggers", Verbs: []string{"list"}, Why: "whether the mesh delivers"},
		{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Names: []string{definitionName}, Verbs: []string{"get"}, Why: "whether that of Kyma Subscriptions is there"},
		{Group: "apps", Resource: "deployments", Namespace: bus, Verbs: []string{"list"}, Why: "whether the Event Bus runs"},
		{Group: "apps", Resource: "replicasets", Namespace: bus, Verbs: []string{"list"}, Why: "whether the Event Bus runs"},
		{Resource: "pods", Namespace: bus, Verbs: []string{"list"}, Why: "whether the Event Bus runs"},
		{Group: "batch", Resource: "jobs", Namespace: bus, Verbs: []string{"list"}, Why: "whether Kyma's own migration runs"},
	}
}
