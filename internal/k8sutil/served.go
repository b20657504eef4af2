package k8sutil

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
)

// Served knows which kinds an API server serves, and at which versions. It asks
// discovery once: two requests where the server aggregates it (Kubernetes 1.27
// on), one more for each version of a group that is asked for on older ones.
type Served struct {
	client *discovery.DiscoveryClient
	retry  func(context.Context, func(context.Context) error) error

	// turn is taken while a request is on its way, too. A caller that waits for it can be
	// cancelled.
	turn      chan struct{}
	loaded    bool
	groups    map[string][]string // versions, best first
	resources map[schema.GroupVersion]*metav1.APIResourceList
	failed    map[schema.GroupVersion]error
}

// NewServed asks through client; retry repeats what fails for a moment.
func NewServed(client *discovery.DiscoveryClient, retry func(context.Context, func(context.Context) error) error) *Served {
	return &Served{client: client, retry: retry, turn: make(chan struct{}, 1)}
}

// Find returns the resource of the best served version of gk, by Kubernetes'
// version priority (v1 before v1beta1 before v1alpha1); false if no version is
// served. A group whose discovery failed is an error, never "not served", and the next
// Find asks again.
func (s *Served) Find(ctx context.Context, gk schema.GroupKind) (schema.GroupVersionResource, bool, error) {
	return s.FindAt(ctx, gk.WithVersion(""))
}

// FindAt is Find, but the version of gvk is the best one as long as it is served.
func (s *Served) FindAt(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionResource, bool, error) {
	gk := gvk.GroupKind()
	done, err := s.begin(ctx)
	if err != nil {
		return schema.GroupVersionResource{}, false, err
	}
	defer done()
	var failed []error
	versions := s.groups[gk.Group]
	if slices.Contains(versions, gvk.Version) {
		versions = append([]string{gvk.Version}, versions...)
	}
	for _, v := range versions {
		gv := schema.GroupVersion{Group: gk.Group, Version: v}
		list, err := s.list(ctx, gv)
		if err != nil {
			failed = append(failed, fmt.Errorf("cannot discover %s: %w", gv, err))
			continue
		}
		for _, r := range list.APIResources {
			if r.Kind == gk.Kind && !isSubresource(r.Name) {
				return gv.WithResource(r.Name), true, nil
			}
		}
	}
	for gv, err := range s.failed {
		if gv.Group == gk.Group && s.resources[gv] == nil {
			failed = append(failed, fmt.Errorf("cannot discover %s: %w", gv, err))
		}
	}
	if len(failed) > 0 {
		s.loaded = false
	}
	return schema.GroupVersionResource{}, false, errors.Join(failed...)
}

// HasVersion says whether a version of a group, "group/version", is served.
func (s *Served) HasVersion(ctx context.Context, groupVersion string) (bool, error) {
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil {
		return false, err
	}
	done, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	return slices.Contains(s.groups[gv.Group], gv.Version), nil
}

// Forget makes the next Find ask the server again.
func (s *Served) Forget() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.loaded = false
}

// begin takes the turn, and knows the groups. done ends the turn.
func (s *Served) begin(ctx context.Context) (done func(), err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	done = func() { <-s.turn }
	if err := s.load(ctx); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

func (s *Served) load(ctx context.Context) error {
	if s.loaded {
		return nil
	}
	return s.retry(ctx, func(ctx context.Context) error {
		groups, resources, failed, err := s.client.GroupsAndMaybeResourcesWithContext(ctx)
		if apierrors.IsForbidden(err) {
			// Discovery loses the server's own words: all that is left of them is "unknown".
			return fmt.Errorf("cannot discover the served kinds: 403 Forbidden: %w", err)
		}
		if err != nil {
			return err
		}
		s.groups = map[string][]string{}
		for _, g := range groups.Groups {
			versions := make([]string, 0, len(g.Versions))
			for _, v := range g.Versions {
				versions = append(versions, v.Version)
			}
			sortVersions(versions)
			s.groups[g.Name] = versions
		}
		s.resources = resources
		if s.resources == nil {
			s.resources = map[schema.GroupVersion]*metav1.APIResourceList{}
		}
		s.failed = failed
		s.loaded = true
		return nil
	})
}

func (s *Served) list(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	if list := s.resources[gv]; list != nil {
		return list, nil
	}
	if err := s.failed[gv]; err != nil {
		return nil, err
	}
	var list *metav1.APIResourceList
	err := s.retry(ctx, func(ctx context.Context) error {
		var err error
		list, err = s.client.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		// The version went away since the group was read.
		list = &metav1.APIResourceList{}
	case err != nil:
		return nil, err
	}
	s.resources[gv] = list
	return list, nil
}

func isSubresource(name string) bool { return strings.Contains(name, "/") }

func sortVersions(versions []string) {
	slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
}
