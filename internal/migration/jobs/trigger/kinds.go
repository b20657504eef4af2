package trigger

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
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

// newKinds names the kinds; nothing is known yet of how they are served.
func newKinds() kinds {
	named := func(gk schema.GroupKind) migration.Kind { return migration.Kind{GroupKind: gk} }
	return kinds{
		subscription: named(kyma.Subscription),
		application:  named(kyma.Application),
		activation:   named(kyma.EventActivation),
		httpSource:   named(kyma.HTTPSource),
		trigger:      named(knative.Trigger),
		broker:       named(knative.Broker),
		channel:      named(kyma.Channel),
		link:         named(kyma.ChannelSubscription),
		service:      named(kyma.Service),
	}
}

func servedKinds(ctx context.Context, c migration.Discovery) (kinds, error) {
	k := newKinds()
	err := migration.Discover(ctx, c, k.all()...)
	return k, err
}

// injects says whether a label on a namespace makes Knative create the Broker in
// it. It did up to 0.13, which served v1alpha1 alone; later releases do so only
// where they must, by another label.
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
