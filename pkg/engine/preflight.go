package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// preflight asks for every permission before the first write.
type preflight struct {
	*act.Actor
	reviews authorizationclient.SelfSubjectAccessReviewInterface
}

// permission is one verb on one resource in one scope.
type permission struct {
	verb, group, resource, subresource, namespace string
	// name is set if the job is to have the permission for that one object only.
	name string
}

func (p permission) String() string {
	resource := p.resource
	if p.subresource != "" {
		resource += "/" + p.subresource
	}
	if p.group != "" {
		resource += "." + p.group
	}
	if p.name != "" {
		resource += " " + p.name
	}
	if p.namespace == "" {
		return fmt.Sprintf("%s %s in the whole cluster", p.verb, resource)
	}
	return fmt.Sprintf("%s %s in namespace %s", p.verb, resource, p.namespace)
}

// permissions are what a run needs: for the plan, for its inverse, and for the
// state objects, each once.
func (pf *preflight) permissions(ctx context.Context, units []migration.Unit) ([]permission, error) {
	needed := map[permission]bool{}
	var named []migration.Access
	if accessor, ok := pf.Job.(migration.Accessor); ok {
		named = slices.DeleteFunc(accessor.Access(), func(row migration.Access) bool { return len(row.Names) == 0 })
	}
	need := func(ref migration.Ref, subresource string, verbs ...string) {
		for _, verb := range verbs {
			p := permission{verb: verb, group: ref.Group, resource: ref.GroupVersionResource.Resource, subresource: subresource, namespace: ref.Namespace}
			if byName(named, p, ref.Name) {
				p.name = ref.Name
			}
			needed[p] = true
		}
	}
	looksAt := map[migration.Subject]bool{}
	for i := range units {
		u := &units[i]
		for j := range u.Changes {
			ch := &u.Changes[j]
			switch ch.Verb {
			case migration.Create, migration.Recreate:
				need(ch.Ref, "", "create", "get", "delete", "list")
			case migration.Delete:
				need(ch.Ref, "", "delete", "get", "create", "list", "watch", "patch")
			case migration.Patch:
				need(ch.Ref, ch.Subresource, "patch", "get")
			case migration.Restart:
				need(ch.Ref, "", "get")
				need(migration.Ref{Resource: migration.Pods, Namespace: ch.Ref.Namespace}, "", "list", "watch", "delete", "get")
			}
			for _, c := range append(pf.Job.Await(ch), pf.After(&journal.Entry{Record: journal.Record{Unit: *u, Pre: make([]journal.Preimage, len(u.Changes))}}, j)...) {
				for _, on := range slices.Concat(c.On, c.OnIfServed) {
					looksAt[on] = true
				}
			}
			for _, ref := range ch.SideEffects {
				need(ref, "", "get", "list", "watch", "delete")
			}
		}
	}
	reads, err := pf.served(ctx, slices.Collect(maps.Keys(looksAt)))
	if err != nil {
		return nil, err
	}
	for _, ref := range reads {
		need(ref, "", "list", "watch")
	}
	if protector, ok := pf.Job.(migration.ProtectReader); ok {
		if reads, err = pf.served(ctx, protector.ProtectReads()); err != nil {
			return nil, err
		}
		for _, ref := range reads {
			need(ref, "", "list")
		}
	}
	for _, row := range migration.WriterState(pf.StateNamespace) {
		for _, verb := range row.Verbs {
			needed[permission{verb: verb, group: row.Group, resource: row.Resource, namespace: row.Namespace}] = true
		}
	}
	all := make([]permission, 0, len(needed))
	for p := range needed {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b permission) int { return cmp.Compare(a.String(), b.String()) })
	return all, nil
}

// served returns the subjects of the kinds that are served, each as it is served. It takes
// no permission to look at a kind that is not: what waits for it fails and says so.
func (pf *preflight) served(ctx context.Context, subjects []migration.Subject) ([]migration.Ref, error) {
	kinds := map[schema.GroupKind]*migration.Kind{}
	refs := make([]migration.Ref, 0, len(subjects))
	for _, s := range subjects {
		k := kinds[s.GroupKind]
		if k == nil {
			k = &migration.Kind{GroupKind: s.GroupKind}
			kinds[s.GroupKind] = k
			if err := migration.Discover(ctx, pf.Writer.Cluster, k); err != nil {
				return nil, err
			}
		}
		if k.Served {
			refs = append(refs, k.Ref(s.Namespace, s.Name))
		}
	}
	return refs, nil
}

// byName says whether a job's own table limits a permission to objects of some names,
// this one among them. A row of the whole cluster holds in each namespace.
func byName(named []migration.Access, p permission, name string) bool {
	return slices.ContainsFunc(named, func(row migration.Access) bool {
		return row.Group == p.group && row.Resource == p.resource && (row.Namespace == "" || row.Namespace == p.namespace) &&
			slices.Contains(row.Names, name) && slices.Contains(row.Verbs, p.verb)
	})
}

// missing names each permission that is needed and not given.
func (pf *preflight) missing(ctx context.Context, units []migration.Unit) ([]migration.Finding, error) {
	needed, err := pf.permissions(ctx, units)
	if err != nil {
		return nil, err
	}
	missing, err := pf.denied(ctx, needed)
	if err != nil {
		return nil, err
	}
	var findings []migration.Finding
	for _, p := range missing {
		f := migration.Finding{ID: "permission-missing", Severity: migration.Error, Problem: "missing permission: " + p.String(), Note: grant}
		if p.namespace == pf.StateNamespace {
			f.Note += " A Role needs its namespace:"
			f.Command = createNamespace(p.namespace)
		}
		findings = append(findings, f)
	}
	return findings, nil
}

const grant = "Grant it to the account that runs the job (its Role or ClusterRole), and run the job again."

// denied returns which of the permissions are not given. What is needed in
// several namespaces is mostly given in all: that is one question.
func (pf *preflight) denied(ctx context.Context, all []permission) ([]permission, error) {
	byVerb := map[permission][]permission{}
	for _, p := range all {
		everywhere := p
		everywhere.namespace = ""
		byVerb[everywhere] = append(byVerb[everywhere], p)
	}
	var mu sync.Mutex
	var missing []permission
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for everywhere, each := range byVerb {
		g.Go(func() error {
			if len(each) > 1 {
				if allowed, err := pf.allowed(ctx, everywhere); allowed || err != nil {
					return err
				}
			}
			for _, p := range each {
				allowed, err := pf.allowed(ctx, p)
				if err != nil {
					return err
				}
				if !allowed {
					mu.Lock()
					missing = append(missing, p)
					mu.Unlock()
				}
			}
			return nil
		})
	}
	err := g.Wait()
	slices.SortFunc(missing, func(a, b permission) int { return cmp.Compare(a.String(), b.String()) })
	return missing, err
}

func (pf *preflight) allowed(ctx context.Context, p permission) (allowed bool, err error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: p.verb, Group: p.group, Resource: p.resource, Subresource: p.subresource, Namespace: p.namespace, Name: p.name,
		},
	}}
	err = pf.Writer.Read(ctx, func(ctx context.Context) error {
		answer, err := pf.reviews.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("cannot ask for the permission to %s: %w", p, err)
		}
		allowed = answer.Status.Allowed
		return nil
	})
	return allowed, err
}
