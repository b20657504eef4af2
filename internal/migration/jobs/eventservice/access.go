package eventservice

import (
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var (
	_ migration.Accessor   = (*Job)(nil)
	_ migration.OnlyReader = (*Job)(nil)
)

// OnlyReads implements migration.OnlyReader.
func (j *Job) OnlyReads() {}

// Access implements migration.Accessor.
func (j *Job) Access() []migration.Access {
	in, reads := j.options.namespace, []string{"list", "watch"}
	return []migration.Access{
		{Group: "applicationconnector.kyma-project.io", Resource: "applications", Verbs: reads, Why: "which are to have switched"},
		{Group: "apps", Resource: "deployments", Namespace: in, Verbs: reads, Why: "their event-services"},
		{Resource: "pods", Namespace: in, Verbs: reads, Why: "whether a former one is left"},
		{Group: "sources.kyma-project.io", Resource: "httpsources", Namespace: in, Verbs: reads, Why: "whether the mesh takes the events"},
		{Group: "messaging.knative.dev", Resource: "channels", Namespace: in, Verbs: reads, Why: "whether the mesh takes the events"},
		{Group: "serving.knative.dev", Resource: "services", Namespace: in, Verbs: reads, Why: "whether the mesh takes the events"},
		{Group: "batch", Resource: "jobs", Namespace: kyma.SystemNamespace, Verbs: []string{"list"}, Why: "whether Kyma's own migration runs"},
	}
}
