package trigger

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// served is a kind as an API server would serve it.
func served(gk schema.GroupKind, version, plural string) migration.Kind {
	r := migration.Resource{GroupVersionResource: gk.WithVersion(version).GroupVersion().WithResource(plural), Kind: gk.Kind}
	return migration.Kind{GroupKind: gk, Resource: r, Served: true}
}

// assumedKinds are the versions of Kyma 1.11's own kinds and of today's Knative.
func assumedKinds() kinds {
	return kinds{
		subscription: served(kyma.Subscription, "v1alpha1", "subscriptions"),
		application:  served(kyma.Application, "v1alpha1", "applications"),
		activation:   served(kyma.EventActivation, "v1alpha1", "eventactivations"),
		httpSource:   served(kyma.HTTPSource, "v1alpha1", "httpsources"),
		trigger:      served(knative.Trigger, "v1", "triggers"),
		broker:       served(knative.Broker, "v1", "brokers"),
		channel:      served(kyma.Channel, "v1", "channels"),
		link:         served(kyma.ChannelSubscription, "v1", "subscriptions"),
		service:      served(kyma.Service, "v1", "services"),
	}
}
