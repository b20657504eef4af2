package model

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// controllers are the world's own: they make ready what is new, make a Broker in a
// namespace that has the label, remove their finalizer and those of the users, and
// delete what belonged to a Registry.
type controllers struct {
	w *World
	u *user
	// broken makes nothing ready.
	broken atomic.Bool
	due    map[string]time.Time
	wake   chan struct{}

	mu sync.Mutex
	// seen are the objects as the watches show them; orphans are the Entries that were
	// there when their Registry was deleted.
	seen    map[migration.Ref]*unstructured.Unstructured
	orphans map[migration.Ref]types.UID
}

// repair makes what is new ready.
func (c *controllers) repair() {
	c.broken.Store(false)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (w *World) startControllers(ctx context.Context, p Place) (*controllers, error) {
	u, err := newUser(p, "controllers")
	if err != nil {
		return nil, err
	}
	c := &controllers{
		w: w, u: u, due: map[string]time.Time{}, wake: make(chan struct{}, 1),
		seen: map[migration.Ref]*unstructured.Unstructured{}, orphans: map[migration.Ref]types.UID{},
	}
	for _, r := range []migration.Resource{namespaces, sources, sinks, brokers, accounts, roleBindings, instances, registries, entries} {
		scopes := w.Spaces
		if r == namespaces {
			scopes = []string{""}
		}
		for _, scope := range scopes {
			go c.follow(ctx, r, scope)
		}
	}
	go func() {
		for {
			next := c.reconcile(ctx)
			var timer <-chan time.Time
			if !next.IsZero() {
				timer = time.After(max(time.Until(next), time.Millisecond))
			}
			select {
			case <-ctx.Done():
				return
			case <-timer:
			case <-c.wake:
			}
		}
	}()
	return c, nil
}

// after says whether it is time to act on what is named, and remembers when it will
// be. The delay is the same for the same name.
func (c *controllers) after(name string, next *time.Time) bool {
	due, ok := c.due[name]
	if !ok {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		due = time.Now().Add(10*time.Millisecond + time.Duration(mix(h.Sum64()^c.w.Seed)%uint64(c.w.Delay)))
		c.due[name] = due
	}
	if !time.Now().Before(due) {
		return true
	}
	if next.IsZero() || due.Before(*next) {
		*next = due
	}
	return false
}

// done forgets what was waited for.
func (c *controllers) done(name string) { delete(c.due, name) }

// follow keeps what is seen of one kind current.
func (c *controllers) follow(ctx context.Context, r migration.Resource, scope string) {
	for ctx.Err() == nil {
		events, err := c.u.of(r, scope).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return
		}
		for event := range events.ResultChan() {
			obj, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			ref := r.RefTo(obj)
			c.mu.Lock()
			if event.Type == watch.Deleted {
				delete(c.seen, ref)
			} else {
				c.seen[ref] = obj
			}
			if r == registries && event.Type == watch.Deleted {
				for of, entry := range c.seen {
					if of.Resource == entries && of.Namespace == ref.Namespace {
						c.orphans[of] = entry.GetUID()
					}
				}
			}
			c.mu.Unlock()
			select {
			case c.wake <- struct{}{}:
			default:
			}
		}
	}
}

// list returns what is seen of a kind, by name.
func (c *controllers) list(r migration.Resource, space string) []*unstructured.Unstructured {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*unstructured.Unstructured
	for ref, obj := range c.seen {
		if ref.Resource == r && ref.Namespace == space {
			all = append(all, obj)
		}
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

func (c *controllers) get(ref migration.Ref) *unstructured.Unstructured {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[ref]
}

func (c *controllers) reconcile(ctx context.Context) (next time.Time) {
	for _, space := range c.w.Spaces {
		for _, r := range []migration.Resource{sinks, brokers, instances} {
			for _, obj := range c.list(r, space) {
				if isReady(obj) || c.broken.Load() {
					continue
				}
				if name := "ready " + string(obj.GetUID()); c.after(name, &next) {
					c.done(name)
					patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"ready":true}}`, obj.GetUID())
					_ = c.u.merge(ctx, r, space, obj.GetName(), patch, "status")
				}
			}
		}
		for _, obj := range slices.Concat(c.list(sources, space), c.list(entries, space)) {
			kept := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool {
				return f == controlled || strings.HasSuffix(f, holding)
			})
			if obj.GetDeletionTimestamp() == nil || len(kept) == len(obj.GetFinalizers()) {
				continue
			}
			if name := "finalize " + string(obj.GetUID()); c.after(name, &next) {
				c.done(name)
				obj = obj.DeepCopy()
				obj.SetFinalizers(kept)
				of := sources
				if obj.GetKind() == entries.Kind {
					of = entries
				}
				_, _ = c.u.of(of, space).Update(ctx, obj, metav1.UpdateOptions{}) // after a conflict the watch wakes us
			}
		}
		namespace := c.get(migration.Ref{Resource: namespaces, Name: space})
		if namespace != nil && namespace.GetLabels()[label] == "enabled" {
			for _, effect := range sideEffects(space) {
				others := slices.DeleteFunc(sideEffects(space), func(r migration.Ref) bool { return r.Resource == brokers || c.get(r) != nil })
				if c.get(effect) != nil || effect.Resource == brokers && len(others) > 0 {
					continue // Knative's controller, too, creates the Broker last
				}
				name := "effect " + effect.String() + namespace.GetResourceVersion()
				if c.after(name, &next) {
					c.done(name)
					_, _ = c.u.of(effect.Resource, space).Create(ctx, sideEffect(effect), metav1.CreateOptions{})
				}
			}
		}
	}
	c.mu.Lock()
	orphans := c.orphans
	c.orphans = map[migration.Ref]types.UID{}
	c.mu.Unlock()
	for ref, uid := range orphans {
		_ = c.u.of(entries, ref.Namespace).Delete(ctx, ref.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	}
	return next
}

// sideEffects are what the controllers make in a namespace that has the label.
func sideEffects(space string) []migration.Ref {
	return []migration.Ref{
		{Resource: brokers, Namespace: space, Name: "default"},
		{Resource: accounts, Namespace: space, Name: "broker"},
		{Resource: roleBindings, Namespace: space, Name: "broker"},
	}
}

func sideEffect(ref migration.Ref) *unstructured.Unstructured {
	content := map[string]any{}
	switch ref.Kind {
	case "Broker":
		content["spec"] = map[string]any{"class": "default"}
	case "RoleBinding":
		content["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
		content["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": "broker", "namespace": ref.Namespace}}
	}
	obj := object(ref.Resource, ref.Namespace, ref.Name, content)
	obj.SetLabels(map[string]string{injected: "true"})
	return obj
}

// injected is the label of all that the controller makes for a namespace, as Knative's does.
const injected = "injected"

func isReady(obj *unstructured.Unstructured) bool {
	ready, _, _ := unstructured.NestedBool(obj.Object, "status", "ready")
	return ready
}

func has(list []string, one string) bool {
	for _, s := range list {
		if s == one {
			return true
		}
	}
	return false
}

func without(list []string, one string) []string {
	var kept []string
	for _, s := range list {
		if s != one {
			kept = append(kept, s)
		}
	}
	return kept
}
