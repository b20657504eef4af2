package serviceinstance

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration"
)

// kind is a kind the job deals with, and how the API server serves it.
type kind struct {
	schema.GroupKind
	resource migration.Resource
	served   bool
}

func (k kind) ref(namespace, name string) migration.Ref {
	r := migration.Ref{Resource: k.resource, Namespace: namespace, Name: name}
	r.Kind = k.Kind // also if it is not served
	return r
}

func (k kind) refTo(obj *unstructured.Unstructured) migration.Ref {
	return k.ref(obj.GetNamespace(), obj.GetName())
}

// object returns an object of the kind, as the API server serves it.
func (k kind) object(ref migration.Ref, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": k.resource.GroupVersion().String(), "kind": k.Kind,
		"metadata": map[string]any{"namespace": ref.Namespace, "name": ref.Name},
		"spec":     spec,
	}}
}

type kinds struct {
	instance, class, plan, serviceBroker, binding, usage kind
	application, mapping, activation                     kind
	channel, link, broker, policy                        kind
}

func (k *kinds) all() []*kind {
	return []*kind{
		&k.instance, &k.class, &k.plan, &k.serviceBroker, &k.binding, &k.usage,
		&k.application, &k.mapping, &k.activation,
		&k.channel, &k.link, &k.broker, &k.policy,
	}
}

// assumedKinds are the versions of Kyma 1.11's own kinds and of today's Knative,
// for conditions that are asked for before any discovery.
func assumedKinds() kinds {
	assume := func(gk schema.GroupKind, version, plural string) kind {
		return kind{GroupKind: gk, served: true, resource: migration.Resource{
			GroupVersionResource: gk.WithVersion(version).GroupVersion().WithResource(plural), Kind: gk.Kind,
		}}
	}
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
	for _, one := range k.all() {
		r, served, err := c.Served(ctx, one.GroupKind)
		if err != nil {
			return k, err
		}
		*one = kind{GroupKind: one.GroupKind, resource: r, served: served}
	}
	return k, nil
}

// injects says whether a label on a namespace makes Knative create the Broker in
// it. It did up to 0.13, which served v1alpha1 alone.
func (k *kinds) injects() bool { return k.broker.resource.Version == "v1alpha1" }

// Core kinds are at v1 on every server this runs against.
var (
	namespaces      = coreResource("", "namespaces", "Namespace")
	pods            = coreResource("", "pods", "Pod")
	secrets         = coreResource("", "secrets", "Secret")
	serviceAccounts = coreResource("", "serviceaccounts", "ServiceAccount")
	deployments     = coreResource("apps", "deployments", "Deployment")
	roleBindings    = coreResource("rbac.authorization.k8s.io", "rolebindings", "RoleBinding")
)

func coreResource(group, plural, kind string) migration.Resource {
	return migration.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}, Kind: kind,
	}
}

// mapAt and text read without copying, and take what is missing or of another
// type as absent.
func mapAt(m map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		m, _ = m[key].(map[string]any)
	}
	return m
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// specOf reads a string of the object's spec.
func specOf(obj *unstructured.Unstructured, keys ...string) string {
	at := mapAt(obj.Object, append([]string{"spec"}, keys[:len(keys)-1]...)...)
	return text(at[keys[len(keys)-1]])
}
