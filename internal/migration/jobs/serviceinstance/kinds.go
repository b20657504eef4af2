package serviceinstance

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// object returns an object of the kind, as the API server serves it.
func object(k migration.Kind, ref migration.Ref, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": k.Resource.GroupVersion().String(), "kind": k.Kind,
		"metadata": map[string]any{"namespace": ref.Namespace, "name": ref.Name},
		"spec":     spec,
	}}
}

type kinds struct {
	instance, class, plan, serviceBroker, binding, usage migration.Kind
	application, mapping, activation                     migration.Kind
	channel, link, broker, policy, trigger               migration.Kind
}

func (k *kinds) all() []*migration.Kind {
	return []*migration.Kind{
		&k.instance, &k.class, &k.plan, &k.serviceBroker, &k.binding, &k.usage,
		&k.application, &k.mapping, &k.activation,
		&k.channel, &k.link, &k.broker, &k.policy, &k.trigger,
	}
}

// newKinds names the kinds; nothing is known yet of how they are served.
func newKinds() kinds {
	named := func(gk schema.GroupKind) migration.Kind { return migration.Kind{GroupKind: gk} }
	return kinds{
		instance:      named(kyma.ServiceInstance),
		class:         named(kyma.ServiceClass),
		plan:          named(kyma.ServicePlan),
		serviceBroker: named(kyma.ServiceBroker),
		binding:       named(kyma.ServiceBinding),
		usage:         named(kyma.ServiceBindingUsage),
		application:   named(kyma.Application),
		mapping:       named(kyma.ApplicationMapping),
		activation:    named(kyma.EventActivation),
		channel:       named(kyma.Channel),
		link:          named(kyma.ChannelSubscription),
		broker:        named(knative.Broker),
		policy:        named(kyma.AuthenticationPolicy),
		trigger:       named(knative.Trigger),
	}
}

func servedKinds(ctx context.Context, c migration.Discovery) (kinds, error) {
	k := newKinds()
	err := migration.Discover(ctx, c, k.all()...)
	return k, err
}

// injects says whether a label on a namespace makes Knative create the Broker in
// it. It did up to 0.13, which served v1alpha1 alone.
func (k *kinds) injects() bool { return k.broker.Resource.Version == "v1alpha1" }

// Core kinds are at v1 on every server this runs against.
var (
	namespaces      = migration.CoreResource("", "namespaces", "Namespace")
	pods            = migration.CoreResource("", "pods", "Pod")
	secrets         = migration.CoreResource("", "secrets", "Secret")
	serviceAccounts = migration.CoreResource("", "serviceaccounts", "ServiceAccount")
	deployments     = migration.CoreResource("apps", "deployments", "Deployment")
	roleBindings    = migration.CoreResource("rbac.authorization.k8s.io", "rolebindings", "RoleBinding")
)

// specOf reads a string of the object's spec.
func specOf(obj *unstructured.Unstructured, keys ...string) string {
	at := k8sobject.MapAt(obj.Object, append([]string{"spec"}, keys[:len(keys)-1]...)...)
	return k8sobject.Text(at[keys[len(keys)-1]])
}
