package httpsource

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	Get(context.Context, migration.Ref) (*unstructured.Unstructured, error)
}

type kinds struct {
	application, httpSource, channel, service migration.Kind
}

func servedKinds(ctx context.Context, c migration.Discovery) (kinds, error) {
	k := kinds{
		application: migration.Kind{GroupKind: kyma.Application},
		httpSource:  migration.Kind{GroupKind: kyma.HTTPSource},
		channel:     migration.Kind{GroupKind: kyma.Channel},
		service:     migration.Kind{GroupKind: kyma.Service},
	}
	err := migration.Discover(ctx, c, &k.application, &k.httpSource, &k.channel, &k.service)
	return k, err
}

// application is what the job needs of an Application.
type application struct {
	name        string
	terminating bool
	optedOut    bool
	skips       bool // spec.skipInstallation
	installed   bool // it has a Helm release nevertheless
}

// objects are by name, all in the integration namespace.
type objects map[string]*unstructured.Unstructured

// snapshot is everything the job decides over.
type snapshot struct {
	kinds        kinds
	applications []application // by name
	sources      objects
	channels     objects
	services     objects

	// Read only if an HTTPSource is to be created.
	namespace namespaceState
	tiller    *tiller
}

type namespaceState int

const (
	namespaceNotRead namespaceState = iota
	namespaceActive
	namespaceMissing
	namespaceTerminating
)

// Core kinds are at v1 on every server this runs against; asking discovery for
// them would cost an older one a request each.
var (
	configMaps  = migration.CoreResource("", "configmaps", "ConfigMap")
	namespaces  = migration.CoreResource("", "namespaces", "Namespace")
	deployments = migration.CoreResource("apps", "deployments", "Deployment")
)

// observe reads what decide needs: four lists, and Tiller's records and the
// namespace only if something is missing.
func observe(ctx context.Context, c reader, o options) (*snapshot, error) {
	s := &snapshot{sources: objects{}, channels: objects{}, services: objects{}}
	var err error
	if s.kinds, err = servedKinds(ctx, c); err != nil {
		return nil, err
	}
	if !s.kinds.application.Served {
		return s, nil
	}
	if err := s.list(ctx, c, o.namespace); err != nil {
		return nil, err
	}
	missing := s.missing(o)
	if len(missing) == 0 {
		return s, nil
	}
	if s.namespace, err = readNamespace(ctx, c, o.namespace); err != nil {
		return nil, err
	}
	s.tiller, err = readTiller(ctx, c, o.tillerNamespace, missing)
	return s, err
}

// list reads the four collections side by side.
func (s *snapshot) list(ctx context.Context, c reader, namespace string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		// By name: a list that begins again hands objects over twice.
		byName := map[string]application{}
		err := c.Each(ctx, s.kinds.application.Resource, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
			byName[obj.GetName()] = application{
				name:        obj.GetName(),
				terminating: obj.GetDeletionTimestamp() != nil,
				optedOut:    kyma.OptedOut(obj),
				skips:       kyma.SkipsInstallation(obj),
				installed:   kyma.Installed(obj),
			}
			return nil
		})
		s.applications = sorted(byName)
		return err
	})
	for _, k := range []struct {
		kind migration.Kind
		to   objects
	}{
		{s.kinds.httpSource, s.sources},
		{s.kinds.channel, s.channels},
		{s.kinds.service, s.services},
	} {
		if !k.kind.Served {
			continue
		}
		g.Go(func() error {
			list, err := c.List(ctx, k.kind.Resource, namespace, migration.ListOptions{Trim: trimTo(k.kind, namespace)})
			for _, obj := range list {
				k.to[obj.GetName()] = obj
			}
			return err
		})
	}
	return g.Wait()
}

func sorted(byName map[string]application) []application {
	apps := make([]application, 0, len(byName))
	for _, app := range byName {
		apps = append(apps, app)
	}
	slices.SortFunc(apps, func(a, b application) int { return strings.Compare(a.name, b.name) })
	return apps
}

func readNamespace(ctx context.Context, c reader, name string) (namespaceState, error) {
	obj, err := c.Get(ctx, migration.Ref{Resource: namespaces, Name: name})
	switch {
	case err != nil:
		return namespaceNotRead, err
	case obj == nil:
		return namespaceMissing, nil
	case obj.GetDeletionTimestamp() != nil:
		return namespaceTerminating, nil
	default:
		return namespaceActive, nil
	}
}

// tillerPage is small because a record holds a whole chart, up to 1 MiB.
const tillerPage = 50

// readTiller reads Tiller's deployed releases, and of those that are called as
// one of the Applications, whether they contain its HTTPSource.
func readTiller(ctx context.Context, c reader, namespace string, applications map[string]bool) (*tiller, error) {
	t := &tiller{releases: map[string]release{}}
	if namespace == "" {
		return t, nil // there is no Tiller
	}
	err := c.Each(ctx, configMaps, namespace, migration.ListOptions{
		LabelSelector: tillerSelector, PageSize: tillerPage,
	}, func(record *unstructured.Unstructured) error {
		t.add(record, applications)
		return nil
	})
	if apierrors.IsForbidden(err) {
		// Only this one error is part of the answer: it is for the user to grant
		// the right or to decide without Tiller. Any other ends the run.
		return &tiller{denied: true}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read Tiller's releases in namespace %s: %w", namespace, err)
	}
	return t, nil
}

// trimTo is eventpath.TrimTo. The HTTPSource is the kind that is written.
func trimTo(k migration.Kind, namespace string) func(*unstructured.Unstructured) {
	written := k.GroupKind == kyma.HTTPSource
	trim := eventpath.TrimTo(k.Resource.GroupVersion(), k.Kind, namespace, written)
	return func(obj *unstructured.Unstructured) {
		if written {
			k8sobject.TrimAnnotations(obj, kyma.MarkAnnotation) // others are not the engine's to delete
		}
		trim(obj)
	}
}
