package trigger

import (
	"context"
	"fmt"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// spell names a kind with its group.
func spell(k migration.Kind) string { return fmt.Sprintf("kind %s (%s)", k.Kind, k.Group) }

type kinds struct {
	subscription, application, activation, httpSource migration.Kind
	trigger, broker, channel, link, service           migration.Kind
}

func (k *kinds) all() []*migration.Kind {
	return []*migration.Kind{
		&k.subscription, &k.application, &k.activation, &k.httpSource,
		&k.trigger, &k.broker, &k.channel, &k.link, &k.service,
	}
}

// assumedKinds are the versions of Kyma 1.11's own kinds and of today's Knative,
// for conditions that are asked for before any discovery.
func assumedKinds() kinds {
	assume := migration.AssumedKind
	return kinds{
		subscription: assume(kyma.Subscription, "v1alpha1", "subscriptions"),
		application:  assume(kyma.Application, "v1alpha1", "applications"),
		activation:   assume(kyma.EventActivation, "v1alpha1", "eventactivations"),
		httpSource:   assume(kyma.HTTPSource, "v1alpha1", "httpsources"),
		trigger:      assume(kyma.Trigger, "v1", "triggers"),
		broker:       assume(kyma.Broker, "v1", "brokers"),
		channel:      assume(kyma.Channel, "v1", "channels"),
		link:         assume(kyma.ChannelSubscription, "v1", "subscriptions"),
		service:      assume(kyma.Service, "v1", "services"),
	}
}

func servedKinds(ctx context.Context, c reader) (kinds, error) {
	k := assumedKinds()
	return k, migration.Discover(ctx, c, k.all()...)
}

// injects says whether a label on a namespace makes Knative create the Broker in
// it. It did up to 0.13, which served v1alpha1 alone; later releases do so only
// where they are told to, by another label.
func (k *kinds) injects() bool { return k.broker.Resource.Version == "v1alpha1" }

// Core kinds are at v1 on every server this runs against; asking discovery for
// them would cost an older one a request each.
var (
	namespaces      = migration.CoreResource("", "namespaces", "Namespace")
	pods            = migration.CoreResource("", "pods", "Pod")
	serviceAccounts = migration.CoreResource("", "serviceaccounts", "ServiceAccount")
	deployments     = migration.CoreResource("apps", "deployments", "Deployment")
	replicaSets     = migration.CoreResource("apps", "replicasets", "ReplicaSet")
	roleBindings    = migration.CoreResource("rbac.authorization.k8s.io", "rolebindings", "RoleBinding")
)
