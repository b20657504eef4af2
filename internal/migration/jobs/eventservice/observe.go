package eventservice

import (
	"context"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// reader is what the job needs of a migration.Cluster.
type reader interface {
	Served(context.Context, schema.GroupKind) (migration.Resource, bool, error)
	List(context.Context, migration.Resource, string, migration.ListOptions) ([]*unstructured.Unstructured, error)
	Each(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured) error) error
}

// Core kinds are at v1 on every server this runs against; asking discovery for
// them would cost an older one a request each.
var (
	deployments = migration.CoreResource("apps", "deployments", "Deployment")
	pods        = migration.CoreResource("", "pods", "Pod")
	jobs        = migration.CoreResource("batch", "jobs", "Job")
)

// kinds are those whose version is the cluster's choice.
type kinds struct {
	application, httpSource, channel, service migration.Resource
	// missing are those of them that are not served.
	missing []schema.GroupKind
}

// objects are by name, all in the integration namespace.
type objects map[string]*unstructured.Unstructured

// snapshot is everything the job decides over.
type snapshot struct {
	kinds        kinds
	applications objects
	deployments  objects
	sources      objects
	channels     objects
	services     objects
	pods         []*unstructured.Unstructured
	// migrations are Jobs of Kyma's own migration that run.
	migrations []string
}

func observe(ctx context.Context, c reader, o options) (*snapshot, error) {
	s := &snapshot{applications: objects{}, deployments: objects{}, sources: objects{}, channels: objects{}, services: objects{}}
	for _, k := range []struct {
		gk schema.GroupKind
		to *migration.Resource
	}{
		{kyma.Application, &s.kinds.application},
		{kyma.HTTPSource, &s.kinds.httpSource},
		{kyma.Channel, &s.kinds.channel},
		{kyma.Service, &s.kinds.service},
	} {
		r, served, err := c.Served(ctx, k.gk)
		if err != nil {
			return nil, err
		}
		*k.to = r
		if !served {
			s.kinds.missing = append(s.kinds.missing, k.gk)
		}
	}
	if slices.Contains(s.kinds.missing, kyma.Application) {
		return s, nil
	}
	g, ctx := errgroup.WithContext(ctx)
	// Listed, and so remembered: the wait goes on from here.
	for _, k := range []struct {
		resource  migration.Resource
		gk        schema.GroupKind
		namespace string
		to        objects
		trim      func(*unstructured.Unstructured)
	}{
		{s.kinds.application, kyma.Application, "", s.applications, trimApplication},
		{deployments, schema.GroupKind{}, o.namespace, s.deployments, eventpath.TrimWorkload},
		{s.kinds.httpSource, kyma.HTTPSource, o.namespace, s.sources, trimSource(s.kinds.httpSource, o.namespace)},
		{s.kinds.channel, kyma.Channel, o.namespace, s.channels, eventpath.TrimTo(s.kinds.channel.GroupVersion(), kyma.Channel.Kind, o.namespace, false)},
		{s.kinds.service, kyma.Service, o.namespace, s.services, eventpath.TrimTo(s.kinds.service.GroupVersion(), kyma.Service.Kind, o.namespace, false)},
	} {
		if slices.Contains(s.kinds.missing, k.gk) {
			continue
		}
		g.Go(func() error {
			list, err := c.List(ctx, k.resource, k.namespace, migration.ListOptions{Trim: k.trim})
			for _, obj := range list {
				k.to[obj.GetName()] = obj
			}
			return err
		})
	}
	g.Go(func() (err error) {
		s.pods, err = c.List(ctx, pods, o.namespace, migration.ListOptions{Trim: eventpath.TrimWorkload, PageSize: migration.LargePage})
		return err
	})
	g.Go(func() error {
		found := map[string]bool{}
		err := c.Each(ctx, jobs, kyma.SystemNamespace, migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
			if kyma.MeshMigrationRuns(obj) {
				found[obj.GetName()] = true
			}
			return nil
		})
		s.migrations = slices.Sorted(maps.Keys(found))
		return err
	})
	return s, g.Wait()
}

// trimApplication keeps of an Application whether it takes part, and what became of its release.
func trimApplication(obj *unstructured.Unstructured) {
	k8sobject.TrimMeta(obj)
	k8sobject.TrimAnnotations(obj)
	meta := k8sobject.MapAt(obj.Object, "metadata")
	delete(meta, "ownerReferences")
	if !kyma.OptedOut(obj) {
		delete(meta, "labels")
	}
	skips := kyma.SkipsInstallation(obj)
	if delete(obj.Object, "spec"); skips {
		obj.Object["spec"] = map[string]any{"skipInstallation": true}
	}
	if _, failed := kyma.InstallationFailed(obj); !failed {
		delete(obj.Object, "status") // of a release that has not failed nothing is read
	}
}

// trimSource keeps of an HTTPSource what it is the source of, too.
func trimSource(of migration.Resource, namespace string) func(*unstructured.Unstructured) {
	trim := eventpath.TrimTo(of.GroupVersion(), kyma.HTTPSource.Kind, namespace, false)
	return func(obj *unstructured.Unstructured) {
		spec := map[string]any{"source": kyma.SourceOf(obj)}
		trim(obj)
		obj.Object["spec"] = spec
	}
}
