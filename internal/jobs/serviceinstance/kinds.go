package serviceinstance

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
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
	channel, link, broker, policy                        migration.Kind
}

func (k *kinds) all() []*migration.Kind {
	return []*migration.Kind{
		&k.instance, &k.class, &k.plan, &k.serviceBroker, &k.binding, &k.usage,
		&k.application, &k.mapping, &k.activation,
		&k.channel, &k.link, &k.broker, &k.policy,
	}
}

// assumedKinds are the versions of Kyma 1.11's own kinds and of today's Knative,
// for conditions that are asked for before any discovery.
func assumedKinds() kinds {
	assume := migration.AssumedKind
	return kinds{
		instance:      assume(kyma.ServiceInstance, "v1beta1", "serviceinstances"),
		class:         assume(kyma.ServiceClass, "v1beta1", "serviceclasses"),
		plan:          assume(kyma.ServicePlan, "v1beta1", "serviceplans"),
		serviceBroker: assume(kyma.ServiceBroker, "v1beta1", "servicebrokers"),
		binding:       assume(kyma.ServiceBinding, "v1beta1", "servicebindings"),
		usage:         assume(kyma.ServiceBindingUsage, "v1alpha1", "servicebindingusages"),
		application:   assume(kyma.Application, "v1alpha1", "applications"),
		mapping:       assume(kyma.ApplicationMapping, "v1alpha1", "applicationmappings"),
		activation:    assume(kyma.EventActivation, "v1alpha1", "eventactivations"),
		channel:       assume(kyma.Channel, "v1", "channels"),
		link:          assume(kyma.ChannelSubscription, "v1", "subscriptions"),
		broker:        assume(kyma.Broker, "v1", "brokers"),
		policy:        assume(kyma.AuthenticationPolicy, "v1alpha1", "policies"),
	}
}

func servedKinds(ctx context.Context, c reader) (kinds, error) {
	k := assumedKinds()
	return k, migration.Discover(ctx, c, k.all()...)
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
	at := kyma.MapAt(obj.Object, append([]string{"spec"}, keys[:len(keys)-1]...)...)
	return kyma.Text(at[keys[len(keys)-1]])
}
