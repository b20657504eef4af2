package purge

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// reader is what the job needs of a migration.Cluster.
type reader interface {
	Served(context.Context, schema.GroupKind) (migration.Resource, bool, error)
	Each(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured) error) error
	Get(context.Context, migration.Ref) (*unstructured.Unstructured, error)
	TryCreate(context.Context, migration.Ref, *unstructured.Unstructured) error
}

// Core kinds are at v1 on every server this runs against; asking discovery for
// them would cost an older one a request each.
var (
	deployments = migration.CoreResource("apps", "deployments", "Deployment")
	replicaSets = migration.CoreResource("apps", "replicasets", "ReplicaSet")
	pods        = migration.CoreResource("", "pods", "Pod")
	jobs        = migration.CoreResource("batch", "jobs", "Job")
	configMaps  = migration.CoreResource("", "configmaps", "ConfigMap")
	secrets     = migration.CoreResource("", "secrets", "Secret")
)

// found is an object, and as what it is served.
type found struct {
	ref    migration.Ref
	object *unstructured.Unstructured
}

// snapshot is everything the job decides over.
type snapshot struct {
	// subscriptions are Kyma's, of the Event Bus; foreign ones are of another
	// form, of a newer Kyma.
	subscriptions, foreign []found
	activations            []found // with the finalizer
	channels               []found
	channelSubscriptions   []found
	// subscribed are the names of the Channels that a Knative Subscription of anybody is
	// about.
	subscribed map[string]bool
	triggers   []found // that are not ready
	// running are the pods of the Event Bus, and its Deployments that are not at 0.
	running []migration.Ref
	// helm2 and helm3 are the releases that exist, by their state.
	helm2, helm3 string
	migrations   []string
	// definition is nil if there is none.
	definition *definitionFound
}

// reading collects objects of one kind.
type reading struct {
	gk        schema.GroupKind
	namespace string
	selector  string
	take      func(*unstructured.Unstructured) bool
	to        *[]found
}

// observe reads it. Without releases, nobody asks whether the Helm release exists: its
// records are Secrets, which hold the values of the release.
func observe(ctx context.Context, c reader, o options, exclude []string, releases bool) (*snapshot, error) {
	s := &snapshot{subscribed: map[string]bool{}}
	leftOut := func(obj *unstructured.Unstructured) bool {
		return kyma.OptedOut(obj) || slices.Contains(exclude, obj.GetNamespace())
	}
	g, ctx := errgroup.WithContext(ctx)
	s.observeUse(ctx, g, c, o, releases)
	for _, r := range []reading{{
		gk: kyma.EventActivation, to: &s.activations,
		take: func(obj *unstructured.Unstructured) bool {
			return slices.Contains(obj.GetFinalizers(), kyma.EventActivationFinalizer) && !leftOut(obj)
		},
	}, {
		gk: kyma.Channel, namespace: o.namespace, selector: kyma.EventSourceLabel, to: &s.channels,
		take: func(obj *unstructured.Unstructured) bool {
			kyma.TrimSubscribers(obj)
			return !leftOut(obj)
		},
	}, {
		gk: kyma.ChannelSubscription, namespace: o.namespace, to: &s.channelSubscriptions,
		take: func(obj *unstructured.Unstructured) bool {
			s.subscribed[k8sobject.Text(k8sobject.MapAt(obj.Object, "spec", "channel")["name"])] = true
			return obj.GetLabels()[kyma.EventSourceLabel] != "" && !leftOut(obj)
		},
	}, {
		gk: knative.Trigger, to: &s.triggers,
		take: func(obj *unstructured.Unstructured) bool {
			return obj.GetDeletionTimestamp() == nil && !k8sobject.ReadinessOf(obj).OK() && !leftOut(obj)
		},
	}} {
		g.Go(func() error { return r.read(ctx, c) })
	}
	g.Go(func() error { return s.readDefinition(ctx, c) })
	return s, g.Wait()
}

// observeUse reads what of the Event Bus is still used, but for the Triggers, which
// are many.
func (s *snapshot) observeUse(ctx context.Context, g *errgroup.Group, c reader, o options, releases bool) {
	for _, r := range []reading{{
		gk: kyma.Subscription, to: &s.subscriptions, take: kyma.LegacySubscription,
	}, {
		gk: kyma.Subscription, to: &s.foreign,
		take: func(obj *unstructured.Unstructured) bool { return !kyma.LegacySubscription(obj) },
	}} {
		g.Go(func() error { return r.read(ctx, c) })
	}
	g.Go(func() error { return s.readRunning(ctx, c, o) })
	if releases {
		g.Go(func() (err error) {
			if o.tillerNamespace == "" {
				return nil // there is no Tiller
			}
			s.helm2, err = newest(ctx, c, configMaps, o.tillerNamespace, "OWNER=TILLER,NAME="+o.release, "VERSION", "STATUS", "DELETED")
			return err
		})
		g.Go(func() (err error) {
			s.helm3, err = newest(ctx, c, secrets, o.namespace, "owner=helm,name="+o.release, "version", "status", "uninstalled")
			return err
		})
	}
	g.Go(func() error {
		running := map[string]bool{}
		err := c.Each(ctx, jobs, o.namespace, migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
			if kyma.MeshMigrationRuns(obj) {
				running[obj.GetName()] = true
			}
			return nil
		})
		s.migrations = slices.Sorted(maps.Keys(running))
		return err
	})
}

func (r reading) read(ctx context.Context, c reader) error {
	resource, served, err := c.Served(ctx, r.gk)
	if err != nil || !served {
		return err
	}
	// By name: a list that begins again hands objects over twice.
	byName := map[string]found{}
	opts := migration.ListOptions{LabelSelector: r.selector}
	err = c.Each(ctx, resource, r.namespace, opts, func(obj *unstructured.Unstructured) error {
		if r.take(obj) {
			ref := resource.RefTo(obj)
			byName[ref.String()] = found{ref, k8sutil.Image(obj)}
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		// A list is "not found" only if the kind is not served any more: another run
		// has removed its definition since discovery.
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		*r.to = append(*r.to, byName[name])
	}
	return err
}

func (s *snapshot) readRunning(ctx context.Context, c reader, o options) error {
	lists := make([][]*unstructured.Unstructured, 3)
	for i, resource := range []migration.Resource{deployments, replicaSets, pods} {
		byName := map[string]*unstructured.Unstructured{}
		err := c.Each(ctx, resource, o.namespace, migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
			if resource == pods {
				eventpath.TrimPod(obj)
			} else {
				unstructured.RemoveNestedField(obj.Object, "spec", "template")
			}
			byName[obj.GetName()] = obj
			return nil
		})
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			lists[i] = append(lists[i], byName[name])
		}
	}
	for _, name := range []string{o.publisher, o.controller} {
		var deployment *unstructured.Unstructured
		for _, obj := range lists[0] {
			if obj.GetName() != name || obj.GetDeletionTimestamp() != nil {
				continue
			}
			deployment = obj
			if n, ok, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas"); n > 0 || !ok {
				s.running = append(s.running, migration.Ref{Resource: deployments, Namespace: o.namespace, Name: name})
			}
		}
		owned := k8sutil.PodsOfDeployment(name, deployment, lists[1], lists[2])
		for _, pod := range eventpath.BusPods(name, owned, lists[2]) {
			s.running = append(s.running, migration.Ref{Resource: pods, Namespace: o.namespace, Name: pod.GetName()})
		}
	}
	return nil
}

// newest returns the state of a release's newest revision, "" if there is no
// release, or it is gone but for its history.
func newest(ctx context.Context, c reader, storage migration.Resource, namespace, selector, version, state, gone string) (string, error) {
	last, found := -1, ""
	opts := migration.ListOptions{
		LabelSelector: selector, PageSize: recordPage,
		Trim: func(obj *unstructured.Unstructured) { delete(obj.Object, "data") },
	}
	err := c.Each(ctx, storage, namespace, opts, func(obj *unstructured.Unstructured) error {
		labels := obj.GetLabels()
		n, err := strconv.Atoi(labels[version])
		if err != nil {
			n = 0 // it exists nevertheless
		}
		if n >= last {
			last, found = n, labels[state]
			if found == "" {
				found = "of an unknown state"
			}
		}
		return nil
	})
	if found == gone {
		found = ""
	}
	return found, err
}

// recordPage is small because a record holds a whole chart, up to 1 MiB.
const recordPage = 20

// versions are those that a CustomResourceDefinition serves.
func versions(crd *unstructured.Unstructured) []string {
	var names []string
	list, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range list {
		version, _ := v.(map[string]any)
		if name, _ := version["name"].(string); version["served"] == true {
			names = append(names, name)
		}
	}
	// apiextensions v1beta1 allowed for one version outside the list.
	if name, _, _ := unstructured.NestedString(crd.Object, "spec", "version"); name != "" && !slices.Contains(names, name) && len(list) == 0 {
		names = append(names, name)
	}
	return names
}
