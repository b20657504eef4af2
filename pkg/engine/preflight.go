package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// preflight asks for every permission before the first write.
type preflight struct {
	actor *act.Actor
	asker asker
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
	if accessor, ok := pf.actor.Job.(migration.Accessor); ok {
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
		for _, s := range journal.NewEntry(0, *u, make([]journal.Preimage, len(u.Changes))).Steps() {
			switch s.Verb {
			case migration.Create, migration.Recreate:
				need(s.Ref, "", "create", "get", "delete", "list")
			case migration.Delete:
				need(s.Ref, "", "delete", "get", "create", "list", "watch", "patch")
			case migration.Patch:
				need(s.Ref, s.Subresource, "patch", "get")
			case migration.Restart:
				need(s.Ref, "", "get")
				need(migration.Ref{Resource: migration.Pods, Namespace: s.Ref.Namespace}, "", "list", "watch", "delete", "get")
			}
			for _, c := range append(pf.actor.Job.Await(s.Change), pf.actor.After(s)...) {
				for _, on := range slices.Concat(c.On, c.OnIfServed) {
					looksAt[on] = true
				}
			}
			for _, ref := range s.SideEffects {
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
	if protector, ok := pf.actor.Job.(migration.ProtectReader); ok {
		if reads, err = pf.served(ctx, protector.ProtectReads()); err != nil {
			return nil, err
		}
		for _, ref := range reads {
			need(ref, "", "list")
		}
	}
	for _, row := range migration.WriterState(pf.actor.StateNamespace) {
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
			if err := migration.Discover(ctx, pf.actor.Writer.Cluster, k); err != nil {
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
	missing, err := pf.asker.denied(ctx, needed)
	if err != nil {
		return nil, err
	}
	_, says := pf.actor.Job.(migration.Accessor)
	return pf.asker.notGranted(says, missing), nil
}

// asker asks the API server what this account may do.
type asker struct{ engine *Engine }

// notGranted are the findings about missing permissions. inRole: the Role that Options.Grant
// prints has them.
func (a asker) notGranted(inRole bool, missing []permission) []migration.Finding {
	var findings []migration.Finding
	for _, p := range missing {
		f := migration.Finding{ID: "permission-missing", Severity: migration.Error, Problem: "missing permission: " + p.String(), Note: grant}
		if p.namespace == a.engine.opts.StateNamespace {
			f.Note += " A Role needs its namespace:"
			f.Command = createNamespace(p.namespace)
		}
		if inRole && a.engine.opts.Grant != "" {
			f.Note, f.Command = "An administrator has to apply the Role that this command prints. Then run again.", a.engine.opts.Grant
		}
		findings = append(findings, f)
	}
	return findings
}

// accessOf is what a job needs in all, its state included; nothing if it does not say that.
func (a asker) accessOf(job migration.Job) []migration.Access {
	accessor, ok := job.(migration.Accessor)
	switch {
	case !ok:
		return nil
	case onlyReads(job):
		return append(accessor.Access(), migration.ReaderState(a.engine.opts.StateNamespace)...)
	default:
		return append(accessor.Access(), migration.WriterState(a.engine.opts.StateNamespace)...)
	}
}

// PermissionError is a refusal, with everything that the account lacks for the job.
type PermissionError struct {
	Findings []migration.Finding
	Err      error
}

func (e *PermissionError) Error() string {
	if n := len(e.Findings); n > 1 {
		return fmt.Sprintf("%s are missing, the first: %v", migration.Count(n, "permission"), e.Err)
	}
	return e.Err.Error()
}

func (e *PermissionError) Unwrap() error { return e.Err }

// refused completes an answer of the API server that a permission is missing: all that are
// missing are named at once, of those that are needed. Any other error stays as it is.
func (a asker) refused(ctx context.Context, needed []migration.Access, err error) error {
	if k8sutil.RefusalOf(err).Kind != k8sutil.NoPermission {
		return err
	}
	missing, failed := a.missing(ctx, needed)
	if failed != nil || len(missing) == 0 {
		return err
	}
	return &PermissionError{Findings: a.notGranted(true, missing), Err: err}
}

// Applicable leaves out the rows that are limited to an API that this cluster does not serve.
func (e *Engine) Applicable(ctx context.Context, rows []migration.Access) ([]migration.Access, error) {
	knative := "v1alpha1"
	if v1, err := e.served.HasVersion(ctx, "eventing.knative.dev/v1"); err != nil {
		return nil, err
	} else if v1 {
		knative = "v1"
	}
	var out []migration.Access
	for _, row := range rows {
		if row.Served != "" {
			if served, err := e.served.HasVersion(ctx, row.Served); err != nil {
				return nil, err
			} else if !served {
				continue
			}
		}
		if row.Knative == "" || row.Knative == knative {
			out = append(out, row)
		}
	}
	return out, nil
}

// Missing names each permission of the rows that this account lacks, of those that apply to
// this cluster: "get pods in namespace shop".
func (e *Engine) Missing(ctx context.Context, rows []migration.Access) ([]string, error) {
	missing, err := asker{e}.missing(ctx, rows)
	names := make([]string, len(missing))
	for i, p := range missing {
		names[i] = p.String()
	}
	return names, err
}

func (a asker) missing(ctx context.Context, rows []migration.Access) ([]permission, error) {
	rows, err := a.engine.Applicable(ctx, rows)
	if err != nil {
		return nil, err
	}
	var all []permission
	for _, row := range rows {
		resource, subresource, _ := strings.Cut(row.Resource, "/")
		names := row.Names
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range row.Verbs {
			for _, name := range names {
				p := permission{verb: verb, group: row.Group, resource: resource, subresource: subresource, namespace: row.Namespace, name: name}
				if !slices.Contains(all, p) {
					all = append(all, p)
				}
			}
		}
	}
	return a.denied(ctx, all)
}

const grant = "Grant it to the account that runs the job (its Role or ClusterRole), and run the job again."

// denied returns which of the permissions are not given. What is needed in
// several namespaces is mostly given in all: that is one question.
func (a asker) denied(ctx context.Context, all []permission) ([]permission, error) {
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
				if allowed, err := a.allowed(ctx, everywhere); allowed || err != nil {
					return err
				}
			}
			for _, p := range each {
				allowed, err := a.allowed(ctx, p)
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
	slices.SortFunc(missing, func(p, q permission) int { return cmp.Compare(p.String(), q.String()) })
	return missing, err
}

func (a asker) allowed(ctx context.Context, p permission) (allowed bool, err error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: p.verb, Group: p.group, Resource: p.resource, Subresource: p.subresource, Namespace: p.namespace, Name: p.name,
		},
	}}
	err = a.engine.read(ctx, func(ctx context.Context) error {
		answer, err := a.engine.reviews.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("cannot ask for the permission to %s: %w", p, err)
		}
		allowed = answer.Status.Allowed
		return nil
	})
	return allowed, err
}
