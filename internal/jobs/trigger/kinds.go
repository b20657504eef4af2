package trigger

import (
	"context"
	"fmt"
	"strings"

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

// command spells an object of the kind for kubectl, with the group: Kyma's and
// Knative's Subscriptions share their name, and so do their short names.
func (k kind) command(namespace, name string) string {
	return fmt.Sprintf("kubectl -n %s %%s %s.%s/%s", namespace, strings.ToLower(k.Kind), k.Group, name)
}

func (k kind) describe(namespace, name string) string {
	return fmt.Sprintf(k.command(namespace, name), "describe")
}

// spell names a kind with its group.
func (k kind) spell() string { return fmt.Sprintf("kind %s (%s)", k.Kind, k.Group) }

type kinds struct {
	subscription, application, activation, httpSource kind
	trigger, broker, channel, link, service           kind
}

func (k *kinds) all() []*kind {
	return []*kind{
		&k.subscription, &k.application, &k.activation, &k.httpSource,
		&k.trigger, &k.broker, &k.channel, &k.link, &k.service,
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
// it. It did up to 0.13, which served v1alpha1 alone; later releases do so only
// where they are told to, by another label.
func (k *kinds) injects() bool { return k.broker.resource.Version == "v1alpha1" }

// Core kinds are at v1 on every server this runs against; asking discovery for
// them would cost an older one a request each.
var (
	namespaces      = coreResource("", "namespaces", "Namespace")
	pods            = coreResource("", "pods", "Pod")
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
