package scaledown

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// reader is what the job needs of a migration.Cluster.
type reader interface {
	Served(context.Context, schema.GroupKind) (migration.Resource, bool, error)
	List(context.Context, migration.Resource, string, migration.ListOptions) ([]*unstructured.Unstructured, error)
	Each(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured) error) error
	Get(context.Context, migration.Ref) (*unstructured.Unstructured, error)
}

// Core kinds are at v1 on every server this runs against; asking discovery for
// them would cost an older one a request each.
var (
	deployments = migration.CoreResource("apps", "deployments", "Deployment")
	replicaSets = migration.CoreResource("apps", "replicasets", "ReplicaSet")
	pods        = migration.CoreResource("", "pods", "Pod")
	jobs        = migration.CoreResource("batch", "jobs", "Job")
	namespaces  = migration.CoreResource("", "namespaces", "Namespace")
)

// autoscaler is served at v1 on Kubernetes 1.16, and at v2 today.
var autoscaler = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}

// ReplicasLabel keeps on a Deployment how many replicas it had before it was
// scaled to 0.
const ReplicasLabel = "eventmesh-migration.kyma-project.io/replicas"

// snapshot is everything the job decides over.
type snapshot struct {
	// bus are the Deployments of the Event Bus in the order in which they go.
	bus []busDeployment
	// migrations are Jobs of Kyma's own migration that run.
	migrations []string

	// What follows is read only if the Event Bus is not down already.

	// eventServices that are not switched, by Application.
	eventServices []eventService
	subscriptions []subscription
	// activations still have the finalizer of the subscription-controller; excused are
	// those of them that are no part of the migration, by "namespace/name".
	activations []*unstructured.Unstructured
	excused     map[string]bool
	activation  migration.Resource
}

// busDeployment is one of the two Deployments.
type busDeployment struct {
	ref migration.Ref
	// object is nil if there is none, or it is being deleted.
	object *unstructured.Unstructured
	// pods are the names of those that exist.
	pods []string
	// autoscalers target the Deployment.
	autoscalers []string
}

func (d busDeployment) replicas() int64 {
	if d.object == nil {
		return 0
	}
	n, ok, _ := unstructured.NestedInt64(d.object.Object, "spec", "replicas")
	if !ok {
		return 1
	}
	return n
}

// keptReplicas is the number in the label, 0 if there is none.
func (d busDeployment) keptReplicas() int64 {
	if d.object == nil {
		return 0
	}
	n, err := strconv.ParseInt(d.object.GetLabels()[ReplicasLabel], 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// down says whether nothing of the Deployment runs.
func (d busDeployment) down() bool { return d.replicas() == 0 && len(d.pods) == 0 }

// eventService is one that posts to the Event Bus, or may.
type eventService struct {
	application, namespace string
	// why it is not switched.
	why eventpath.Answer
	// optedOut: its Application, or its Deployment, carries the label.
	optedOut bool
	skips    bool // spec.skipInstallation
	orphan   bool // there is no Application of its name
}

// subscription is a Kyma Subscription.
type subscription struct {
	name string // "namespace/name"
	// leftOut: it, or its namespace, is no part of the migration.
	leftOut     bool
	terminating bool
}

func observe(ctx context.Context, c reader, o options, exclude []string) (*snapshot, error) {
	s := &snapshot{}
	if err := s.readBus(ctx, c, o); err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.readMigrations(gctx, c, o) })
	g.Go(func() error { return s.readActivations(gctx, c) })
	if !s.down() {
		g.Go(func() error { return s.readEventServices(gctx, c, o) })
		g.Go(func() error { return s.readAutoscalers(gctx, c, o) })
		g.Go(func() error { return s.readSubscriptions(gctx, c) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return s, s.leaveOut(ctx, c, exclude)
}

// leaveOut marks what is no part of the migration because of its namespace.
func (s *snapshot) leaveOut(ctx context.Context, c reader, exclude []string) error {
	if len(s.subscriptions)+len(s.activations) == 0 {
		return nil
	}
	left := map[string]bool{}
	for _, ns := range append(kyma.SystemNamespaces(), exclude...) {
		left[ns] = true
	}
	opts := migration.ListOptions{LabelSelector: kyma.OptOutLabel + "=true"}
	err := c.Each(ctx, namespaces, "", opts, func(obj *unstructured.Unstructured) error {
		left[obj.GetName()] = true
		return nil
	})
	if err != nil {
		return err
	}
	for i := range s.subscriptions {
		ns, _, _ := strings.Cut(s.subscriptions[i].name, "/")
		s.subscriptions[i].leftOut = s.subscriptions[i].leftOut || left[ns]
	}
	s.excused = map[string]bool{}
	s.activations = slices.DeleteFunc(s.activations, func(obj *unstructured.Unstructured) bool {
		if left[obj.GetNamespace()] || kyma.OptedOut(obj) {
			s.excused[k8sutil.Key(obj)] = true
		}
		return s.excused[k8sutil.Key(obj)]
	})
	return nil
}

// down says whether nothing of the Event Bus runs.
func (s *snapshot) down() bool {
	return !slices.ContainsFunc(s.bus, func(d busDeployment) bool { return !d.down() })
}

func (s *snapshot) readBus(ctx context.Context, c reader, o options) error {
	var all, sets, running []*unstructured.Unstructured
	g, gctx := errgroup.WithContext(ctx)
	for _, kind := range []struct {
		resource migration.Resource
		to       *[]*unstructured.Unstructured
	}{{deployments, &all}, {replicaSets, &sets}, {pods, &running}} {
		g.Go(func() error {
			// Remembered, so that the wait goes on from here.
			list, err := c.List(gctx, kind.resource, o.namespace, migration.ListOptions{Trim: trim})
			*kind.to = list
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, name := range []string{o.publisher, o.controller} {
		d := busDeployment{ref: migration.Ref{Resource: deployments, Namespace: o.namespace, Name: name}}
		for _, obj := range all {
			if obj.GetName() == name && obj.GetDeletionTimestamp() == nil {
				d.object = obj
			}
		}
		for _, pod := range podsOf(name, d.object, sets, running) {
			d.pods = append(d.pods, pod.GetName())
		}
		slices.Sort(d.pods)
		s.bus = append(s.bus, d)
	}
	return nil
}

func podsOf(name string, deployment *unstructured.Unstructured, sets, all []*unstructured.Unstructured) []*unstructured.Unstructured {
	return eventpath.BusPods(name, k8sutil.PodsOfDeployment(name, deployment, sets, all), all)
}

// trim leaves out what the job does not read and what takes most of the room.
func trim(obj *unstructured.Unstructured) {
	switch obj.GetKind() {
	case pods.Kind:
		eventpath.TrimPod(obj)
	default:
		unstructured.RemoveNestedField(obj.Object, "spec", "template")
	}
}

func (s *snapshot) readMigrations(ctx context.Context, c reader, o options) error {
	err := c.Each(ctx, jobs, o.namespace, migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
		if kyma.MeshMigrationRuns(obj) && !slices.Contains(s.migrations, obj.GetName()) {
			s.migrations = append(s.migrations, obj.GetName())
		}
		return nil
	})
	slices.Sort(s.migrations)
	return err
}

// readEventServices finds the event-services that are not switched.
func (s *snapshot) readEventServices(ctx context.Context, c reader, o options) error {
	// By Application.
	found, former := map[string]*unstructured.Unstructured{}, eventpath.FormerPods{}
	err := c.Each(ctx, deployments, o.integrationNamespace, migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
		for _, app := range eventpath.ApplicationsOf(obj) {
			found[app] = obj
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = c.Each(ctx, pods, o.integrationNamespace, migration.ListOptions{PageSize: migration.LargePage}, func(pod *unstructured.Unstructured) error {
		former.Add(pod)
		return nil
	})
	if err != nil {
		return err
	}
	unswitched := map[string]eventpath.Answer{}
	judge := func(app string) {
		// An Application without any event-service posts nothing.
		service := eventpath.EventService{Application: app, Namespace: o.integrationNamespace, Deployment: found[app], Former: former.Of(app), Optional: true}
		if why := service.Switched(); !why.OK() {
			unswitched[app] = why
		}
	}
	for app := range found {
		judge(app)
	}
	for app := range former {
		judge(app)
	}
	if len(unswitched) == 0 {
		return nil
	}
	applications, served, err := c.Served(ctx, kyma.Application)
	if err != nil {
		return err
	}
	for app, why := range unswitched {
		e := eventService{application: app, namespace: o.integrationNamespace, why: why, orphan: true}
		if found[app] != nil {
			e.optedOut = kyma.OptedOut(found[app])
		}
		if served {
			obj, err := c.Get(ctx, migration.Ref{Resource: applications, Name: app})
			if err != nil {
				return err
			}
			if obj != nil {
				e.orphan = false
				e.optedOut = e.optedOut || kyma.OptedOut(obj)
				e.skips = kyma.SkipsInstallation(obj)
			}
		}
		s.eventServices = append(s.eventServices, e)
	}
	slices.SortFunc(s.eventServices, func(a, b eventService) int { return strings.Compare(a.application, b.application) })
	return nil
}

func (s *snapshot) readAutoscalers(ctx context.Context, c reader, o options) error {
	resource, served, err := c.Served(ctx, autoscaler)
	if err != nil || !served {
		return err
	}
	return c.Each(ctx, resource, o.namespace, migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
		kind, _, _ := unstructured.NestedString(obj.Object, "spec", "scaleTargetRef", "kind")
		name, _, _ := unstructured.NestedString(obj.Object, "spec", "scaleTargetRef", "name")
		for i := range s.bus {
			d := &s.bus[i]
			if kind == deployments.Kind && name == d.ref.Name && !slices.Contains(d.autoscalers, obj.GetName()) {
				d.autoscalers = append(d.autoscalers, obj.GetName())
			}
		}
		return nil
	})
}

func (s *snapshot) readSubscriptions(ctx context.Context, c reader) error {
	resource, served, err := c.Served(ctx, kyma.Subscription)
	if err != nil || !served {
		return err
	}
	byName := map[string]subscription{}
	err = c.Each(ctx, resource, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
		if kyma.LegacySubscription(obj) {
			name := obj.GetNamespace() + "/" + obj.GetName()
			byName[name] = subscription{name: name, leftOut: kyma.OptedOut(obj), terminating: obj.GetDeletionTimestamp() != nil}
		}
		return nil
	})
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		s.subscriptions = append(s.subscriptions, byName[name])
	}
	return err
}

// readActivations finds the EventActivations whose deletion would hang.
func (s *snapshot) readActivations(ctx context.Context, c reader) error {
	resource, served, err := c.Served(ctx, kyma.EventActivation)
	if err != nil || !served {
		return err
	}
	s.activation = resource
	byName := map[string]*unstructured.Unstructured{}
	err = c.Each(ctx, resource, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
		if slices.Contains(obj.GetFinalizers(), kyma.EventActivationFinalizer) {
			byName[obj.GetNamespace()+"/"+obj.GetName()] = obj
		}
		return nil
	})
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		s.activations = append(s.activations, byName[name])
	}
	return err
}
