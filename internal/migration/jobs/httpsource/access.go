package httpsource

import (
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var _ migration.Accessor = (*Job)(nil)

// Access implements migration.Accessor.
func (j *Job) Access() []migration.Access {
	in := j.options.namespace
	rows := []migration.Access{
		{Group: "applicationconnector.kyma-project.io", Resource: "applications", Verbs: []string{"list"}, Why: "which have no HTTPSource"},
		{Resource: "namespaces", Names: []string{in}, Verbs: []string{"get"}, Why: "whether there is one to create in"},
		{Group: "sources.kyma-project.io", Resource: "httpsources", Namespace: in, Verbs: []string{"get", "list", "watch", "create", "delete"}, Why: "created; deleted again by rollback and undo"},
		{Group: "messaging.knative.dev", Resource: "channels", Namespace: in, Verbs: []string{"list", "watch"}, Why: "whether an HTTPSource takes events"},
		{Group: "serving.knative.dev", Resource: "services", Namespace: in, Verbs: []string{"list", "watch"}, Why: "whether an HTTPSource takes events"},
		{Group: "apps", Resource: "deployments", Namespace: kyma.SystemNamespace, Verbs: []string{"list", "watch"}, Why: "whether the controller of HTTPSources runs, while one is awaited"},
		migration.EventAccess(in),
	}
	rows = append(rows, migration.WorkloadAccess(in, "what carries live events stays in a rollback")...)
	if j.options.tillerNamespace != "" {
		rows = append(rows, migration.Access{Resource: "configmaps", Namespace: j.options.tillerNamespace, Verbs: []string{"list"}, Why: "whether Tiller's release of an Application knows its HTTPSource"})
	}
	return rows
}
