package model

import (
	"context"
	"hash/fnv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration"
)

// controllers are the world's own: they make ready what is new, make a Broker in a
// namespace that has the label, remove their finalizer, and delete what belonged to a
// Registry.
type controllers struct {
	w *World
	u *user
	// broken makes nothing ready.
	broken atomic.Bool
	due    map[string]time.Time
	wake   chan struct{}
}

// repair makes ready again what is new.
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
	c := &controllers{w: w, u: u, due: map[string]time.Time{}, wake: make(chan struct{}, 1)}
	for _, r := range []migration.Resource{namespaces, sources, sinks, brokers, instances, registries, entries} {
		namespace := ""
		go func() {
			for ctx.Err() == nil {
				events, err := u.of(r, namespace).Watch(ctx, metav1.ListOptions{})
				if err != nil {
					return
				}
				for range events.ResultChan() {
					select {
					case c.wake <- struct{}{}:
					default:
					}
				}
			}
		}()
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

func (c *controllers) list(ctx context.Context, r migration.Resource, namespace string) []unstructured.Unstructured {
	list, err := c.u.of(r, namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return list.Items
}

func (c *controllers) reconcile(ctx context.Context) (next time.Time) {
	for _, space := range c.w.Spaces {
		for _, r := range []migration.Resource{sinks, brokers, instances} {
			for _, obj := range c.list(ctx, r, space) {
				if isReady(&obj) || c.broken.Load() {
					continue
				}
				if name := "ready " + string(obj.GetUID()); c.after(name, &next) {
					c.done(name)
					_ = c.u.merge(ctx, r, space, obj.GetName(), `{"status":{"ready":true}}`, "status")
				}
			}
		}
		for _, obj := range c.list(ctx, sources, space) {
			if obj.GetDeletionTimestamp() == nil || !has(obj.GetFinalizers(), controlled) {
				continue
			}
			if name := "finalize " + string(obj.GetUID()); c.after(name, &next) {
				c.done(name)
				obj.SetFinalizers(without(obj.GetFinalizers(), controlled))
				if _, err := c.u.of(sources, space).Update(ctx, &obj, metav1.UpdateOptions{}); err != nil {
					next = time.Now().Add(10 * time.Millisecond)
				}
			}
		}
		namespace, err := c.u.of(namespaces, "").Get(ctx, space, metav1.GetOptions{})
		if err == nil && namespace.GetLabels()[label] == "enabled" {
			for _, effect := range sideEffects(space) {
				if _, err := c.u.of(effect.Resource, space).Get(ctx, effect.Name, metav1.GetOptions{}); err == nil {
					continue
				}
				name := "effect " + effect.String() + namespace.GetResourceVersion()
				if c.after(name, &next) {
					c.done(name)
					_, _ = c.u.of(effect.Resource, space).Create(ctx, sideEffect(effect), metav1.CreateOptions{})
				}
			}
		}
		if len(c.list(ctx, registries, space)) == 0 {
			for _, obj := range c.list(ctx, entries, space) {
				_ = c.u.of(entries, space).Delete(ctx, obj.GetName(), metav1.DeleteOptions{})
			}
		}
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
	return object(ref.Resource, ref.Namespace, ref.Name, content)
}

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
