// Package inventory reads every object of the event path of a whole cluster, from
// Applications to subscribers, once. What verify and eventmap conclude is a function
// of the inventory.
package inventory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Reader is what is asked of a migration.Cluster.
type Reader interface {
	Served(context.Context, schema.GroupKind) (migration.Resource, bool, error)
	Each(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured) error) error
}

// Objects of one kind by "namespace/name".
type Objects map[string]*unstructured.Unstructured

// Inventory is everything that was read.
type Inventory struct {
	Applications, EventActivations                          Objects
	HTTPSources, Channels, ChannelSubscriptions, Services   Objects
	Subscriptions, Brokers, Triggers                        Objects
	Deployments, Pods, Autoscalers, Jobs, Namespaces        Objects
	ServiceInstances, ServiceBindings, ServiceBindingUsages Objects

	served   map[schema.GroupKind]bool
	excluded map[string]bool

	// What is looked up for each of thousands.
	linksBy    map[[2]string][]*unstructured.Unstructured // Application and namespace
	podsBy     map[string][]*unstructured.Unstructured    // Application
	triggersBy map[Delivery]*unstructured.Unstructured
}

// Delivery is what a Trigger and a Kyma Subscription have in common if one does
// what the other did.
type Delivery struct{ Namespace, Source, EventType, Version, Address string }

var (
	deployments = migration.CoreResource("apps", "deployments", "Deployment")
	pods        = migration.CoreResource("", "pods", "Pod")
	jobs        = migration.CoreResource("batch", "jobs", "Job")
	namespaces  = migration.CoreResource("", "namespaces", "Namespace")
	autoscaler  = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}
)

// Read reads the inventory, everything side by side.
func Read(ctx context.Context, c Reader, exclude []string) (*Inventory, error) {
	in := &Inventory{served: map[schema.GroupKind]bool{}, excluded: map[string]bool{}}
	for _, ns := range append(kyma.SystemNamespaces(), exclude...) {
		in.excluded[ns] = true
	}
	g, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	list := func(r migration.Resource, namespace string, page int64, trim func(*unstructured.Unstructured), to *Objects) {
		*to = Objects{}
		g.Go(func() error {
			return c.Each(ctx, r, namespace, migration.ListOptions{PageSize: page, Trim: trim}, func(u *unstructured.Unstructured) error {
				mu.Lock()
				defer mu.Unlock()
				(*to)[u.GetNamespace()+"/"+u.GetName()] = u
				return nil
			})
		})
	}
	kind := func(gk schema.GroupKind, namespace string, to *Objects) {
		*to = Objects{}
		g.Go(func() error {
			r, ok, err := c.Served(ctx, gk)
			mu.Lock()
			in.served[gk] = ok
			mu.Unlock()
			if err != nil || !ok {
				return err
			}
			return c.Each(ctx, r, namespace, migration.ListOptions{Trim: trimmed}, func(u *unstructured.Unstructured) error {
				mu.Lock()
				defer mu.Unlock()
				(*to)[u.GetNamespace()+"/"+u.GetName()] = u
				return nil
			})
		})
	}
	kind(kyma.Application, "", &in.Applications)
	kind(kyma.HTTPSource, kyma.IntegrationNamespace, &in.HTTPSources)
	kind(kyma.Channel, "", &in.Channels)
	kind(kyma.Service, kyma.IntegrationNamespace, &in.Services)
	kind(kyma.ChannelSubscription, "", &in.ChannelSubscriptions)
	kind(kyma.EventActivation, "", &in.EventActivations)
	kind(kyma.Subscription, "", &in.Subscriptions)
	kind(knative.Broker, "", &in.Brokers)
	kind(knative.Trigger, "", &in.Triggers)
	kind(kyma.ServiceInstance, "", &in.ServiceInstances)
	kind(kyma.ServiceBinding, "", &in.ServiceBindings)
	kind(kyma.ServiceBindingUsage, "", &in.ServiceBindingUsages)
	kind(autoscaler, kyma.SystemNamespace, &in.Autoscalers)
	var system, systemPods, eventingDeployments Objects
	list(deployments, kyma.IntegrationNamespace, 0, trimmed, &in.Deployments)
	list(deployments, kyma.SystemNamespace, 0, nil, &system)
	list(deployments, kyma.EventingNamespace, 0, nil, &eventingDeployments)
	list(pods, kyma.IntegrationNamespace, 100, trimmed, &in.Pods)
	list(pods, kyma.SystemNamespace, 100, eventpath.TrimPod, &systemPods)
	list(jobs, kyma.SystemNamespace, 0, nil, &in.Jobs)
	list(namespaces, "", 0, nil, &in.Namespaces)
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, more := range []Objects{system, eventingDeployments} {
		for key, u := range more {
			in.Deployments[key] = u
		}
	}
	for key, u := range systemPods {
		in.Pods[key] = u
	}
	for _, u := range in.Namespaces {
		if kyma.OptedOut(u) {
			in.excluded[u.GetName()] = true
		}
	}
	in.index()
	return in, nil
}

// index makes the maps in which much is looked up; each in the order of names.
func (in *Inventory) index() {
	in.linksBy, in.podsBy = map[[2]string][]*unstructured.Unstructured{}, map[string][]*unstructured.Unstructured{}
	in.triggersBy = map[Delivery]*unstructured.Unstructured{}
	for _, u := range in.ChannelSubscriptions.Sorted() {
		if u.GetNamespace() == kyma.IntegrationNamespace {
			if source, namespace, ok := eventpath.LinkOf(u); ok {
				in.linksBy[[2]string{source, namespace}] = append(in.linksBy[[2]string{source, namespace}], u)
			}
		}
	}
	for _, u := range in.Pods.Sorted() {
		if u.GetNamespace() == kyma.IntegrationNamespace && !kyma.Ended(u) {
			for _, app := range eventpath.ApplicationsOf(u) {
				in.podsBy[app] = append(in.podsBy[app], u)
			}
		}
	}
	for _, u := range in.Triggers.Sorted() {
		key, ok := in.DeliveryOf(u)
		if !ok {
			continue
		}
		// Of several, one that is ready.
		if other := in.triggersBy[key]; other == nil || !inForce(other) && inForce(u) {
			in.triggersBy[key] = u
		}
	}
}

// inForce says whether a Trigger is ready, and stays.
func inForce(t *unstructured.Unstructured) bool {
	return t.GetDeletionTimestamp() == nil && k8sobject.ReadinessOf(t).OK()
}

// Serves says whether the API server serves a kind.
func (in *Inventory) Serves(gk schema.GroupKind) bool { return in.served[gk] }

// PodsOf are the pods of an Application's event-service that have not ended.
func (in *Inventory) PodsOf(application string) []*unstructured.Unstructured {
	return in.podsBy[application]
}

// TriggerOf is the Trigger that delivers this, one that is ready if there is one; nil
// if there is none.
func (in *Inventory) TriggerOf(d Delivery) *unstructured.Unstructured { return in.triggersBy[d] }

// HasNamespace says whether there is a namespace of that name.
func (in *Inventory) HasNamespace(name string) bool { return in.Namespaces.Get("", name) != nil }

// Address is the one form of a URL in which two that mean the same are equal.
func (in *Inventory) Address(uri string) string {
	return kyma.Address(uri, func(name string) bool { return in.Namespaces.Get("", name) != nil })
}

// DeliveryOf is what a Trigger delivers; false if that cannot be compared.
func (in *Inventory) DeliveryOf(t *unstructured.Unstructured) (Delivery, bool) {
	a, opaque := kyma.FilterOf(t)
	to := in.Address(kyma.SubscriberOf(t))
	for key := range a {
		opaque = opaque || key != knative.SourceAttribute && key != knative.TypeAttribute && key != knative.EventTypeVersionAttribute
	}
	return Delivery{t.GetNamespace(), a[knative.SourceAttribute], a[knative.TypeAttribute], a[knative.EventTypeVersionAttribute], to}, !opaque && to != ""
}

// DeliveryOfSubscription is what a Kyma Subscription delivers.
func (in *Inventory) DeliveryOfSubscription(s *unstructured.Unstructured) Delivery {
	return Delivery{
		s.GetNamespace(), Field(s, "spec", "source_id"), Field(s, "spec", "event_type"), Field(s, "spec", "event_type_version"), in.Address(Field(s, "spec", "endpoint")),
	}
}

// Sorted are the objects in the order of their names.
func (o Objects) Sorted() []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, 0, len(o))
	for _, u := range o {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return out
}

// Get returns an object, nil if there is none.
func (o Objects) Get(namespace, name string) *unstructured.Unstructured { return o[namespace+"/"+name] }

// TakesPart says whether an object takes part in the migration.
func (in *Inventory) TakesPart(u *unstructured.Unstructured) bool {
	return !kyma.OptedOut(u) && !in.excluded[u.GetNamespace()]
}

// LinksOf are the Knative Subscriptions that bring an Application's events into a
// namespace.
func (in *Inventory) LinksOf(application, namespace string) []*unstructured.Unstructured {
	return in.linksBy[[2]string{application, namespace}]
}

// LinkOf is how an Application's events come into a namespace.
func (in *Inventory) LinkOf(application, namespace string) eventpath.Link {
	return eventpath.Link{
		Source: application, Namespace: namespace, Integration: kyma.IntegrationNamespace,
		Links: in.LinksOf(application, namespace), Broker: in.Brokers.Get(namespace, kyma.DefaultBroker),
	}
}

// SourceOf is where the mesh takes an Application's events.
func (in *Inventory) SourceOf(application string) eventpath.Source {
	const namespace = kyma.IntegrationNamespace
	return eventpath.Source{
		Name: application, Namespace: namespace,
		HTTPSource: in.HTTPSources.Get(namespace, application), Channel: in.Channels.Get(namespace, application), Adapter: in.Services.Get(namespace, application),
	}
}

// EventServiceOf is an Application's event-service, with the pods of it that may still
// post elsewhere. The caller that expects a Deployment says that it is missing.
func (in *Inventory) EventServiceOf(application string) eventpath.EventService {
	return eventpath.EventService{
		Application: application, Namespace: kyma.IntegrationNamespace, Optional: true,
		Deployment: in.Deployments.Get(kyma.IntegrationNamespace, kyma.EventServiceName(application)),
		Former:     eventpath.Former(application, in.podsBy[application]),
	}
}

// Field is a text in an object, "" if there is none.
func Field(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

// BrokerOf is the name of a Trigger's Broker.
func BrokerOf(trigger *unstructured.Unstructured) string {
	return cmp.Or(Field(trigger, "spec", "broker"), kyma.DefaultBroker)
}

// Replicas is what a Deployment should have; the API server's default is 1.
func Replicas(deployment *unstructured.Unstructured) int64 {
	n, ok, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	if !ok {
		return 1
	}
	return n
}

// trimmed leaves out the annotations of what no job has made: they may be longer than all the rest.
func trimmed(obj *unstructured.Unstructured) {
	k8sobject.TrimAnnotations(obj, kyma.OriginAnnotation, kyma.DeliveryAnnotation, kyma.MarkAnnotation)
}
