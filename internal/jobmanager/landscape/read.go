// Package landscape looks at the event path of a whole cluster, from Applications
// to subscribers: it finds what is wrong with a finished migration (Check), and
// which event reaches whom, before and after (MapOf). It only reads; what it
// concludes is a function of what was read.
package landscape

import (
	"context"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Reader is what is asked of a migration.Cluster.
type Reader interface {
	Served(context.Context, schema.GroupKind) (migration.Resource, bool, error)
	Each(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured) error) error
}

// objects of one kind by "namespace/name".
type objects map[string]*unstructured.Unstructured

// Landscape is everything that was read.
type Landscape struct {
	// Left is what hooks have left behind, for Check; nil if nobody has looked (ReadLeft).
	Left *Left

	applications, sources, channels, services, links objects
	activations, subscriptions, brokers, triggers    objects
	deployments, pods, autoscalers, jobs, namespaces objects
	instances, bindings, usages                      objects
	served                                           map[schema.GroupKind]bool
	excluded                                         map[string]bool

	// What is looked up for each of thousands.
	linksBy    map[[2]string][]*unstructured.Unstructured // Application and namespace
	podsBy     map[string][]*unstructured.Unstructured    // Application
	triggersBy map[delivery]*unstructured.Unstructured
}

// delivery is what a Trigger and a Kyma Subscription have in common if one does
// what the other did.
type delivery struct{ namespace, source, eventType, version, address string }

func core(group, plural, kind string) migration.Resource {
	return migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}, Kind: kind}
}

// Core kinds are at v1 on every server this runs against.
var (
	deployments = core("apps", "deployments", "Deployment")
	pods        = core("", "pods", "Pod")
	jobs        = core("batch", "jobs", "Job")
	namespaces  = core("", "namespaces", "Namespace")
	autoscaler  = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}
)

// Read reads the landscape, everything side by side.
func Read(ctx context.Context, c Reader, exclude []string) (*Landscape, error) {
	l := &Landscape{served: map[schema.GroupKind]bool{}, excluded: map[string]bool{}}
	for _, ns := range append(kyma.SystemNamespaces(), exclude...) {
		l.excluded[ns] = true
	}
	g, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	list := func(r migration.Resource, namespace string, page int64, trim func(*unstructured.Unstructured), to *objects) {
		*to = objects{}
		g.Go(func() error {
			return c.Each(ctx, r, namespace, migration.ListOptions{PageSize: page, Trim: trim}, func(u *unstructured.Unstructured) error {
				mu.Lock()
				defer mu.Unlock()
				(*to)[u.GetNamespace()+"/"+u.GetName()] = u
				return nil
			})
		})
	}
	kind := func(gk schema.GroupKind, namespace string, to *objects) {
		*to = objects{}
		g.Go(func() error {
			r, ok, err := c.Served(ctx, gk)
			mu.Lock()
			l.served[gk] = ok
			mu.Unlock()
			if err != nil || !ok {
				return err
			}
			return c.Each(ctx, r, namespace, migration.ListOptions{Trim: k8sutil.TrimLastApplied}, func(u *unstructured.Unstructured) error {
				mu.Lock()
				defer mu.Unlock()
				(*to)[u.GetNamespace()+"/"+u.GetName()] = u
				return nil
			})
		})
	}
	kind(kyma.Application, "", &l.applications)
	kind(kyma.HTTPSource, kyma.IntegrationNamespace, &l.sources)
	kind(kyma.Channel, "", &l.channels)
	kind(kyma.Service, kyma.IntegrationNamespace, &l.services)
	kind(kyma.ChannelSubscription, "", &l.links)
	kind(kyma.EventActivation, "", &l.activations)
	kind(kyma.Subscription, "", &l.subscriptions)
	kind(kyma.Broker, "", &l.brokers)
	kind(kyma.Trigger, "", &l.triggers)
	kind(kyma.ServiceInstance, "", &l.instances)
	kind(kyma.ServiceBinding, "", &l.bindings)
	kind(kyma.ServiceBindingUsage, "", &l.usages)
	kind(autoscaler, kyma.SystemNamespace, &l.autoscalers)
	var system, systemPods, eventingDeployments objects
	list(deployments, kyma.IntegrationNamespace, 0, k8sutil.TrimLastApplied, &l.deployments)
	list(deployments, kyma.SystemNamespace, 0, nil, &system)
	list(deployments, kyma.EventingNamespace, 0, nil, &eventingDeployments)
	list(pods, kyma.IntegrationNamespace, 100, k8sutil.TrimLastApplied, &l.pods)
	list(pods, kyma.SystemNamespace, 100, eventpath.TrimPod, &systemPods)
	list(jobs, kyma.SystemNamespace, 0, nil, &l.jobs)
	list(namespaces, "", 0, nil, &l.namespaces)
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, more := range []objects{system, eventingDeployments} {
		for key, u := range more {
			l.deployments[key] = u
		}
	}
	for key, u := range systemPods {
		l.pods[key] = u
	}
	for _, u := range l.namespaces {
		if kyma.OptedOut(u) {
			l.excluded[u.GetName()] = true
		}
	}
	l.index()
	return l, nil
}

// index makes the maps in which much is looked up; each in the order of names.
func (l *Landscape) index() {
	l.linksBy, l.podsBy = map[[2]string][]*unstructured.Unstructured{}, map[string][]*unstructured.Unstructured{}
	l.triggersBy = map[delivery]*unstructured.Unstructured{}
	for _, u := range l.links.sorted() {
		if u.GetNamespace() == kyma.IntegrationNamespace {
			if source, namespace, ok := eventpath.LinkOf(u); ok {
				l.linksBy[[2]string{source, namespace}] = append(l.linksBy[[2]string{source, namespace}], u)
			}
		}
	}
	for _, u := range l.pods.sorted() {
		if u.GetNamespace() == kyma.IntegrationNamespace && !kyma.Ended(u) {
			for _, app := range eventpath.ApplicationsOf(u) {
				l.podsBy[app] = append(l.podsBy[app], u)
			}
		}
	}
	for _, u := range l.triggers.sorted() {
		key, ok := l.deliveryOf(u)
		if !ok {
			continue
		}
		// Of several, one that is ready.
		if other := l.triggersBy[key]; other == nil || !inForce(other) && inForce(u) {
			l.triggersBy[key] = u
		}
	}
}

// inForce says whether a Trigger is ready, and stays.
func inForce(t *unstructured.Unstructured) bool {
	return t.GetDeletionTimestamp() == nil && kyma.ReadinessOf(t).OK()
}

// HasNamespace says whether there is a namespace of that name.
func (l *Landscape) HasNamespace(name string) bool { return l.namespaces.get("", name) != nil }

// address is the one form of a URL in which two that mean the same are equal.
func (l *Landscape) address(uri string) string {
	return kyma.Address(uri, func(name string) bool { return l.namespaces.get("", name) != nil })
}

// deliveryOf is what a Trigger delivers; false if that cannot be compared.
func (l *Landscape) deliveryOf(t *unstructured.Unstructured) (delivery, bool) {
	a, opaque := kyma.FilterOf(t)
	to := l.address(kyma.SubscriberOf(t))
	for key := range a {
		opaque = opaque || key != kyma.SourceAttribute && key != kyma.TypeAttribute && key != kyma.EventTypeVersionAttribute
	}
	return delivery{t.GetNamespace(), a[kyma.SourceAttribute], a[kyma.TypeAttribute], a[kyma.EventTypeVersionAttribute], to}, !opaque && to != ""
}

func (l *Landscape) deliveryOfSubscription(s *unstructured.Unstructured) delivery {
	return delivery{
		s.GetNamespace(), str(s, "spec", "source_id"), str(s, "spec", "event_type"), str(s, "spec", "event_type_version"), l.address(str(s, "spec", "endpoint")),
	}
}

// sorted are the objects in the order of their names.
func (o objects) sorted() []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, 0, len(o))
	for _, u := range o {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return out
}

func (o objects) get(namespace, name string) *unstructured.Unstructured { return o[namespace+"/"+name] }

// ours says whether an object takes part in the migration.
func (l *Landscape) ours(u *unstructured.Unstructured) bool {
	return !kyma.OptedOut(u) && !l.excluded[u.GetNamespace()]
}

// linksOf are the Knative Subscriptions that bring an Application's events into a
// namespace.
func (l *Landscape) linksOf(application, namespace string) []*unstructured.Unstructured {
	return l.linksBy[[2]string{application, namespace}]
}

// linkOf is how an Application's events come into a namespace.
func (l *Landscape) linkOf(application, namespace string) eventpath.Link {
	return eventpath.Link{
		Source: application, Namespace: namespace, Integration: kyma.IntegrationNamespace,
		Links: l.linksOf(application, namespace), Broker: l.brokers.get(namespace, kyma.DefaultBroker),
	}
}

// sourceOf is where the mesh takes an Application's events.
func (l *Landscape) sourceOf(application string) eventpath.Source {
	const in = kyma.IntegrationNamespace
	return eventpath.Source{
		Name: application, Namespace: in,
		HTTPSource: l.sources.get(in, application), Channel: l.channels.get(in, application), Adapter: l.services.get(in, application),
	}
}

// serviceOf is an Application's event-service, with the pods of it that may still
// post elsewhere. That there must be one is said by whoever expects it.
func (l *Landscape) serviceOf(application string) eventpath.EventService {
	return eventpath.EventService{
		Application: application, Namespace: kyma.IntegrationNamespace, Optional: true,
		Deployment: l.deployments.get(kyma.IntegrationNamespace, kyma.EventServiceName(application)),
		Former:     eventpath.Former(application, l.podsBy[application]),
	}
}

func str(u *unstructured.Unstructured, path ...string) string {
	if u == nil {
		return ""
	}
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}
