package scaledown

import "github.com/kyma-project/eventmesh-migration/pkg/migration"

var _ migration.Accessor = (*Job)(nil)

// Access implements migration.Accessor.
func (j *Job) Access() []migration.Access {
	bus, integration := j.options.namespace, j.options.integrationNamespace
	return []migration.Access{
		{Group: "apps", Resource: "deployments", Namespace: bus, Names: []string{j.options.publisher, j.options.controller}, Verbs: []string{"get", "patch"}, Why: "scaled to 0; the former number is kept in the same patch"},
		{Group: "apps", Resource: "deployments", Namespace: bus, Verbs: []string{"list", "watch"}, Why: "whether they are at 0"},
		{Group: "apps", Resource: "replicasets", Namespace: bus, Verbs: []string{"list", "watch"}, Why: "which pods are the Event Bus's"},
		{Resource: "pods", Namespace: bus, Verbs: []string{"list", "watch"}, Why: "waits until none is left"},
		{Group: "batch", Resource: "jobs", Namespace: bus, Verbs: []string{"list"}, Why: "whether Kyma's own migration runs"},
		{Group: "autoscaling", Resource: "horizontalpodautoscalers", Namespace: bus, Verbs: []string{"list"}, Why: "what may scale it up again"},
		{Group: "apps", Resource: "deployments", Namespace: integration, Verbs: []string{"list"}, Why: "whether an event-service still posts to the Event Bus"},
		{Resource: "pods", Namespace: integration, Verbs: []string{"list"}, Why: "whether an event-service still posts to the Event Bus"},
		{Group: "applicationconnector.kyma-project.io", Resource: "applications", Verbs: []string{"get"}, Why: "why an event-service has not switched"},
		{Group: "eventing.kyma-project.io", Resource: "subscriptions", Verbs: []string{"list"}, Why: "whether one still needs the Event Bus"},
		{Resource: "namespaces", Verbs: []string{"list"}, Why: "which are left out"},
		{Group: "applicationconnector.kyma-project.io", Resource: "eventactivations", Verbs: []string{"get", "list", "patch"}, Why: "removes the finalizer of the subscription-controller"},
		migration.EventAccess(""),
	}
}
