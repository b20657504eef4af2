package eventservice

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// assumedKinds are the versions of Kyma 1.11's own kinds and of today's Knative.
func assumedKinds() kinds {
	assume := func(gk schema.GroupKind, version, plural string) migration.Resource {
		r := migration.Resource{GroupVersionResource: gk.WithVersion(version).GroupVersion().WithResource(plural), Kind: gk.Kind}
		return r
	}
	return kinds{
		application: assume(kyma.Application, "v1alpha1", "applications"),
		httpSource:  assume(kyma.HTTPSource, "v1alpha1", "httpsources"),
		channel:     assume(kyma.Channel, "v1", "channels"),
		service:     assume(kyma.Service, "v1", "services"),
	}
}
