package trigger

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/eventbus"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// reader is what the job needs of a migration.Cluster.
type reader interface {
	Served(context.Context, schema.GroupKind) (migration.Resource, bool, error)
	List(context.Context, migration.Resource, string, migration.ListOptions) ([]*unstructured.Unstructured, error)
	ListEach(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured)) error
	Each(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured) error) error
	Get(context.Context, migration.Ref) (*unstructured.Unstructured, error)
	PodGet(ctx context.Context, namespace, pod string, port int, path string, query url.Values) ([]byte, error)
}

// namespace is what the job needs of a Namespace.
type namespace struct {
	uid         types.UID
	terminating bool
	// excluded: it is a system namespace, or one the user named.
	excluded bool
	optedOut bool
	// injection is the value of the label by which Knative makes a Broker, labelled
	// whether it is there at all.
	injection string
	labelled  bool
}

// application is what the job needs of an Application.
type application struct {
	// absent of an event-service: the application-operator made none.
	withoutEventService bool
}

// pair is an Application, or rather its source of events, and a namespace.
type pair struct{ source, namespace string }

// snapshot is everything the job decides over.
type snapshot struct {
	kinds        kinds
	namespaces   map[string]namespace
	applications map[string]application
	// sources are HTTPSources by what they are the source of; of several, the one
	// that has its name.
	sources map[string]*unstructured.Unstructured
	// subscriptions and activations outside of system namespaces, by namespace
	// and name.
	subscriptions, activations []*unstructured.Unstructured
	// triggers by namespace, and in there by name.
	triggers map[string][]*existing
	// brokers are those called default, by namespace.
	brokers map[string]*unstructured.Unstructured
	// links are the Knative Subscriptions by which a namespace gets the events of
	// an Application.
	links map[pair][]*unstructured.Unstructured
	// unparsable are the Subscriptions of all namespaces whose endpoint is no URL: the
	// subscription-controller crashes on them.
	unparsable []*unstructured.Unstructured
	// wants are the kinds of events that Kyma Subscriptions of all namespaces ask for.
	wants eventbus.Wants
	// controller is the Deployment of the subscription-controller, nil if there is
	// none.
	controller *unstructured.Unstructured
	// mesh and bus are read only if they have a say.
	mesh *mesh
	bus  *eventbus.Bus
}

// existing is what the job needs of a Trigger that exists: there may be thousands.
type existing struct {
	namespace, name string
	// selected, without its address, is nil if the Trigger is none of the default
	// Broker's.
	selected   *route.Selection
	subscriber string
	// problem says why it does not count as ready; "" if it does.
	problem         string
	ready, deleting bool
	// made: an interrupted run of this job created it, and nobody has edited it since.
	made bool
	// mark of a Trigger that this job made, and its UID; "" for all others.
	mark string
	uid  types.UID
}

// existingOf reads a Trigger. made may be nil.
func existingOf(k migration.Kind, obj *unstructured.Unstructured, made func(*unstructured.Unstructured) bool) *existing {
	e := &existing{
		namespace: route.Share(obj.GetNamespace()), name: strings.Clone(obj.GetName()), subscriber: kyma.SubscriberOf(obj),
		problem: unready(k.RefTo(obj), obj), ready: k8sobject.ReadinessOf(obj).OK(), deleting: obj.GetDeletionTimestamp() != nil,
		made: made != nil && made(obj),
	}
	if selected, ours := route.FilterOf(obj); ours {
		e.selected = &selected
	}
	if e.mark = strings.Clone(obj.GetAnnotations()[kyma.DeliveryAnnotation]); e.mark != "" {
		e.uid = obj.GetUID()
	}
	return e
}

// delivery is what a Trigger brings, in the words of a Subscription.
func (e *existing) delivery() route.Delivery {
	return route.Delivery{Source: e.selected.Source, EventType: e.selected.EventType, Version: e.selected.Version, Endpoint: e.subscriber}
}

// isOf says whether this job has made the Trigger for exactly this Subscription, and nobody has
// edited it since. One that has the name of a Subscription that was deleted may carry the events of
// that.
func (e *existing) isOf(sub *unstructured.Unstructured) bool {
	return e.mark != "" && !e.deleting && e.selected != nil && !e.selected.Opaque && e.mark == route.Mark(sub, e.delivery())
}

// mesh is how the events of Applications get into the mesh.
type mesh struct {
	// channels and services (the adapters) have the name of their HTTPSource.
	channels, services map[string]*unstructured.Unstructured
	// eventServices are Deployments by Application.
	eventServices map[string]*unstructured.Unstructured
	// former are the pods of event-services that are not proven to post to the mesh.
	former eventpath.FormerPods
}

func (s *snapshot) isNamespace(name string) bool {
	_, ok := s.namespaces[name]
	return ok
}

// observe reads what the first half of the decision needs: each kind once. made says
// whether an interrupted run of this job created an object, which nobody has edited
// since; nil: none did.
func observe(ctx context.Context, c reader, o options, leavesOut func(string) bool, made func(*unstructured.Unstructured) bool) (*snapshot, error) {
	s := &snapshot{
		namespaces: map[string]namespace{}, applications: map[string]application{},
		sources: map[string]*unstructured.Unstructured{}, triggers: map[string][]*existing{},
		brokers: map[string]*unstructured.Unstructured{}, links: map[pair][]*unstructured.Unstructured{}, wants: eventbus.Wants{},
	}
	var err error
	if s.kinds, err = servedKinds(ctx, c); err != nil || !s.kinds.subscription.Served {
		return s, err
	}
	skip := kyma.LeftOut(leavesOut)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return c.Each(ctx, namespaces, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
			s.addNamespace(obj, skip)
			return nil
		})
	})
	g.Go(func() error {
		var err error
		s.controller, err = c.Get(ctx, eventbus.ControllerRef)
		return err
	})
	each := func(k migration.Kind, namespace string, fn func(*unstructured.Unstructured)) {
		if !k.Served {
			return
		}
		g.Go(func() error {
			return c.Each(ctx, k.Resource, namespace, migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
				fn(obj)
				return nil
			})
		})
	}
	list := func(k migration.Kind, namespace string, trim func(*unstructured.Unstructured), fn func(*unstructured.Unstructured)) {
		if !k.Served {
			return
		}
		g.Go(func() error {
			all, err := c.List(ctx, k.Resource, namespace, migration.ListOptions{Trim: trim})
			slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
				return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
			})
			for _, obj := range all {
				fn(obj)
			}
			return err
		})
	}
	each(s.kinds.application, "", func(obj *unstructured.Unstructured) {
		s.applications[obj.GetName()] = application{withoutEventService: kyma.SkipsInstallation(obj) && !kyma.Installed(obj)}
	})
	list(s.kinds.httpSource, o.integrationNamespace, trimReady, func(obj *unstructured.Unstructured) {
		s.addSource(obj)
	})
	list(s.kinds.subscription, "", eventbus.Trim, func(obj *unstructured.Unstructured) {
		// Later versions of Kyma use the group and kind for something else.
		later := k8sobject.MapAt(obj.Object, "spec")["sink"] != nil && !kyma.LegacySubscription(obj)
		if !later && obj.GetDeletionTimestamp() == nil && route.Unparsable(obj) {
			s.unparsable = append(s.unparsable, obj)
		}
		if !later {
			s.wants.Add(obj)
		}
		if !skip(obj.GetNamespace()) && !later {
			s.subscriptions = append(s.subscriptions, obj)
		}
	})
	list(s.kinds.activation, "", trimReady, func(obj *unstructured.Unstructured) {
		if !skip(obj.GetNamespace()) {
			s.activations = append(s.activations, obj)
		}
	})
	if s.kinds.trigger.Served {
		g.Go(func() error {
			return c.ListEach(ctx, s.kinds.trigger.Resource, "", migration.ListOptions{Trim: trimReady}, func(obj *unstructured.Unstructured) {
				s.triggers[obj.GetNamespace()] = append(s.triggers[obj.GetNamespace()], existingOf(s.kinds.trigger, obj, made))
			})
		})
	}
	list(s.kinds.broker, "", trimReady, func(obj *unstructured.Unstructured) {
		if obj.GetName() == kyma.DefaultBroker {
			s.brokers[obj.GetNamespace()] = obj
		}
	})
	list(s.kinds.link, o.integrationNamespace, trimReady, func(obj *unstructured.Unstructured) {
		s.addLink(obj)
	})
	return s, g.Wait()
}

func (s *snapshot) addNamespace(obj *unstructured.Unstructured, skip func(string) bool) {
	injection, labelled := obj.GetLabels()[kyma.InjectionLabel]
	s.namespaces[obj.GetName()] = namespace{
		uid: obj.GetUID(), terminating: obj.GetDeletionTimestamp() != nil, excluded: skip(obj.GetName()),
		optedOut: kyma.OptedOut(obj), injection: injection, labelled: labelled,
	}
}

// addSource notes an HTTPSource. One that has not the name of its source takes none
// of its events: it is noted only if there is no other, to be reported.
func (s *snapshot) addSource(obj *unstructured.Unstructured) {
	source := kyma.SourceOf(obj)
	if known := s.sources[source]; known == nil || known.GetName() != source {
		s.sources[source] = obj
	}
}

func (s *snapshot) addLink(obj *unstructured.Unstructured) {
	if source, namespace, ok := eventpath.LinkOf(obj); ok {
		key := pair{source, namespace}
		s.links[key] = append(s.links[key], obj)
	}
}

// observeMesh reads what says whether the mesh can, and does, take the events.
func (s *snapshot) observeMesh(ctx context.Context, c reader, o options) error {
	m := &mesh{
		channels: map[string]*unstructured.Unstructured{}, services: map[string]*unstructured.Unstructured{},
		eventServices: map[string]*unstructured.Unstructured{}, former: eventpath.FormerPods{},
	}
	s.mesh = m
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range []struct {
		kind migration.Kind
		to   map[string]*unstructured.Unstructured
	}{{s.kinds.channel, m.channels}, {s.kinds.service, m.services}} {
		if !one.kind.Served {
			continue
		}
		g.Go(func() error {
			return c.Each(ctx, one.kind.Resource, o.integrationNamespace, migration.ListOptions{Trim: trimReady}, func(obj *unstructured.Unstructured) error {
				one.to[obj.GetName()] = obj
				return nil
			})
		})
	}
	g.Go(func() error {
		return c.Each(ctx, deployments, o.integrationNamespace, migration.ListOptions{PageSize: migration.LargePage}, func(obj *unstructured.Unstructured) error {
			eventpath.TrimWorkload(obj)
			for _, app := range eventpath.ApplicationsOf(obj) {
				m.eventServices[app] = obj
			}
			return nil
		})
	})
	g.Go(func() error {
		// Terminating ones are among them: they post until they end.
		opts := migration.ListOptions{FieldSelector: migration.UnfinishedPods, PageSize: migration.LargePage}
		return c.Each(ctx, pods, o.integrationNamespace, opts, func(obj *unstructured.Unstructured) error {
			m.former.Add(obj)
			return nil
		})
	})
	return g.Wait()
}

// trimReady keeps of a status whether the object is ready, and why not, and of the annotations
// those that this job makes.
func trimReady(obj *unstructured.Unstructured) {
	k8sobject.TrimMeta(obj)
	k8sobject.TrimAnnotations(obj, kyma.OriginAnnotation, kyma.DeliveryAnnotation, kyma.MarkAnnotation)
	if k8sobject.MapAt(obj.Object, "spec", "subscriber")["ref"] == nil {
		// Where it sends to is in the spec.
		delete(k8sobject.MapAt(obj.Object, "status"), "subscriberURI")
	}
	k8sobject.TrimStatus(obj)
}
