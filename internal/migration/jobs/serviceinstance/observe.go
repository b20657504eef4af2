package serviceinstance

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// reader is what the job needs of a migration.Cluster.
type reader interface {
	Served(context.Context, schema.GroupKind) (migration.Resource, bool, error)
	List(context.Context, migration.Resource, string, migration.ListOptions) ([]*unstructured.Unstructured, error)
	Each(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured) error) error
	Get(context.Context, migration.Ref) (*unstructured.Unstructured, error)
}

// namespace is what the job needs of a Namespace.
type namespace struct {
	excluded, optedOut, terminating bool
	// injection is the value of the label by which Knative makes a Broker.
	injection string
	// access is the value of the label that application-broker sets, "" if there is
	// none.
	access string
	// basis is what is decided on about its label.
	basis *unstructured.Unstructured
}

// id is a namespace and a name in it.
type id struct{ namespace, name string }

func idOf(obj *unstructured.Unstructured) id { return id{obj.GetNamespace(), obj.GetName()} }

// pair is an Application and a namespace that gets its events.
type pair struct{ application, namespace string }

// snapshot is everything the job decides over.
type snapshot struct {
	kinds      kinds
	namespaces map[string]namespace
	// instances outside of system namespaces, by namespace and name.
	instances    []*unstructured.Unstructured
	applications []*unstructured.Unstructured
	// classes and plans by namespace.
	classes, plans                        map[string][]*unstructured.Unstructured
	mappings, activations, serviceBrokers map[id]*unstructured.Unstructured
	brokers, policies                     map[string]*unstructured.Unstructured // by namespace
	links                                 map[pair][]*unstructured.Unstructured
	channels                              map[string][]*unstructured.Unstructured // by Application
	applicationBroker                     *unstructured.Unstructured

	// recreation is read only if anything is recreated.
	recreation *recreation
}

// recreation is what has a say in, or goes with, the deletion of an instance.
type recreation struct {
	// bindings by the instance, usages by the binding they refer to.
	bindings, usages map[id][]*unstructured.Unstructured
	// brokerStart is when the process of application-broker began that has run
	// for the shortest time.
	brokerStart time.Time
	// brokerReady says that a pod of it is.
	brokerReady bool
	// controlled says that somebody removes finalizers of EventActivations.
	controlled bool
	// secrets are those that parameters come from: the keys of each, nil for one that
	// does not exist. unseen are those that this account may not read.
	secrets map[id]map[string]bool
	unseen  map[id]bool
}

// observe reads what says which instances lack something: each kind once.
func observe(ctx context.Context, c reader, o options, leavesOut func(string) bool) (*snapshot, error) {
	s := &snapshot{
		namespaces: map[string]namespace{},
		classes:    map[string][]*unstructured.Unstructured{}, plans: map[string][]*unstructured.Unstructured{},
		mappings: map[id]*unstructured.Unstructured{}, activations: map[id]*unstructured.Unstructured{}, serviceBrokers: map[id]*unstructured.Unstructured{},
		brokers: map[string]*unstructured.Unstructured{}, policies: map[string]*unstructured.Unstructured{},
		links: map[pair][]*unstructured.Unstructured{}, channels: map[string][]*unstructured.Unstructured{},
	}
	var err error
	if s.kinds, err = servedKinds(ctx, c); err != nil || !s.kinds.instance.Served || !s.kinds.application.Served {
		return s, err
	}
	skip := kyma.LeftOut(leavesOut)
	all, err := c.List(ctx, s.kinds.instance.Resource, "", migration.ListOptions{})
	if err != nil {
		return s, err
	}
	for _, obj := range sorted(all) {
		if !skip(obj.GetNamespace()) {
			s.instances = append(s.instances, obj)
		}
	}
	if len(s.instances) == 0 {
		return s, nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return c.Each(ctx, namespaces, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
			s.namespaces[obj.GetName()] = namespace{
				terminating: obj.GetDeletionTimestamp() != nil, excluded: skip(obj.GetName()),
				optedOut: kyma.OptedOut(obj), injection: obj.GetLabels()[kyma.InjectionLabel], access: obj.GetLabels()[kyma.AccessLabel],
				basis: k8sutil.Basis(obj, []string{"metadata", "labels", kyma.InjectionLabel}),
			}
			return nil
		})
	})
	g.Go(func() (err error) {
		s.applicationBroker, err = c.Get(ctx, migration.Ref{Resource: deployments, Namespace: o.integrationNamespace, Name: kyma.ApplicationBroker})
		return err
	})
	list := func(k migration.Kind, namespace, selector string, fn func(*unstructured.Unstructured)) {
		if !k.Served {
			return
		}
		g.Go(func() error {
			var all []*unstructured.Unstructured
			var err error
			if selector == "" {
				// It may be awaited.
				all, err = c.List(ctx, k.Resource, namespace, migration.ListOptions{})
			} else {
				// By name: a list that begins again hands objects over twice.
				byName := map[id]*unstructured.Unstructured{}
				err = c.Each(ctx, k.Resource, namespace, migration.ListOptions{LabelSelector: selector}, func(obj *unstructured.Unstructured) error {
					byName[idOf(obj)] = obj
					return nil
				})
				all = slices.Collect(maps.Values(byName))
			}
			for _, obj := range sorted(all) {
				fn(obj)
			}
			return err
		})
	}
	into := func(m map[id]*unstructured.Unstructured) func(*unstructured.Unstructured) {
		return func(obj *unstructured.Unstructured) { m[idOf(obj)] = obj }
	}
	list(s.kinds.application, "", "", func(obj *unstructured.Unstructured) { s.applications = append(s.applications, obj) })
	list(s.kinds.mapping, "", "", into(s.mappings))
	list(s.kinds.activation, "", "", into(s.activations))
	list(s.kinds.serviceBroker, "", "", into(s.serviceBrokers))
	list(s.kinds.class, "", "", func(obj *unstructured.Unstructured) {
		s.classes[obj.GetNamespace()] = append(s.classes[obj.GetNamespace()], obj)
	})
	list(s.kinds.plan, "", "", func(obj *unstructured.Unstructured) {
		s.plans[obj.GetNamespace()] = append(s.plans[obj.GetNamespace()], obj)
	})
	list(s.kinds.broker, "", "", func(obj *unstructured.Unstructured) {
		if obj.GetName() == kyma.DefaultBroker {
			s.brokers[obj.GetNamespace()] = obj
		}
	})
	list(s.kinds.policy, "", kyma.TriggerBrokerLabel, func(obj *unstructured.Unstructured) {
		if obj.GetName() == kyma.BrokerPolicyName(obj.GetNamespace()) {
			s.policies[obj.GetNamespace()] = obj
		}
	})
	list(s.kinds.link, o.integrationNamespace, "", func(obj *unstructured.Unstructured) {
		if key := pairOf(obj); key.application != "" && key.namespace != "" {
			s.links[key] = append(s.links[key], obj)
		}
	})
	list(s.kinds.channel, o.integrationNamespace, kyma.ApplicationNameLabel, func(obj *unstructured.Unstructured) {
		app := obj.GetLabels()[kyma.ApplicationNameLabel]
		s.channels[app] = append(s.channels[app], obj)
	})
	return s, g.Wait()
}

func pairOf(link *unstructured.Unstructured) pair {
	return pair{link.GetLabels()[kyma.ApplicationNameLabel], link.GetLabels()[kyma.BrokerNamespaceLabel]}
}

// observeRecreation reads what goes with the deletion of the given instances.
func (s *snapshot) observeRecreation(ctx context.Context, c reader, o options, instances []*unstructured.Unstructured) error {
	r := &recreation{
		bindings: map[id][]*unstructured.Unstructured{}, usages: map[id][]*unstructured.Unstructured{}, secrets: map[id]map[string]bool{}, unseen: map[id]bool{},
	}
	s.recreation = r
	g, gctx := errgroup.WithContext(ctx)
	by := func(k migration.Kind, to map[id][]*unstructured.Unstructured, owner ...string) {
		if !k.Served {
			return
		}
		g.Go(func() error {
			all, err := c.List(gctx, k.Resource, "", migration.ListOptions{})
			for _, obj := range sorted(all) {
				key := id{obj.GetNamespace(), specOf(obj, owner...)}
				to[key] = append(to[key], obj)
			}
			return err
		})
	}
	by(s.kinds.binding, r.bindings, "instanceRef", "name")
	by(s.kinds.usage, r.usages, "serviceBindingRef", "name")
	g.Go(func() error {
		// Listed, since a restart is awaited.
		all, err := c.List(gctx, pods, o.integrationNamespace, migration.ListOptions{})
		for _, pod := range all {
			if !kyma.OfApplicationBroker(pod) || kyma.Ended(pod) {
				continue
			}
			if start := k8sutil.PodStart(pod); start.After(r.brokerStart) {
				r.brokerStart = start
			}
			r.brokerReady = r.brokerReady || pod.GetDeletionTimestamp() == nil && k8sobject.ConditionOf(pod, "Ready").True()
		}
		return err
	})
	g.Go(func() error {
		controller, err := c.Get(gctx, migration.Ref{Resource: deployments, Namespace: kyma.SystemNamespace, Name: kyma.SubscriptionController})
		if controller != nil {
			replicas, found, err := unstructured.NestedInt64(controller.Object, "spec", "replicas")
			r.controlled = err != nil || !found || replicas > 0
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	for _, instance := range instances {
		withParameters := []*unstructured.Unstructured{instance}
		withParameters = append(withParameters, r.bindings[idOf(instance)]...)
		for _, obj := range withParameters {
			for _, source := range kyma.ParameterSources(obj) {
				key := id{obj.GetNamespace(), source.Secret}
				if _, known := r.secrets[key]; known || r.unseen[key] {
					continue
				}
				secret, err := c.Get(ctx, migration.Ref{Resource: secrets, Namespace: key.namespace, Name: key.name})
				if apierrors.IsForbidden(err) {
					r.unseen[key] = true
					continue
				}
				if err != nil {
					return err
				}
				r.secrets[key] = keysOf(secret) // and nothing else of it is kept
			}
		}
	}
	return nil
}

// keysOf returns the keys of a Secret, nil if there is none.
func keysOf(secret *unstructured.Unstructured) map[string]bool {
	if secret == nil {
		return nil
	}
	keys := map[string]bool{}
	for key := range k8sobject.MapAt(secret.Object, "data") {
		keys[key] = true
	}
	return keys
}

// sorted sorts by namespace and name, so that plans are the same each time.
func sorted(all []*unstructured.Unstructured) []*unstructured.Unstructured {
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return all
}
