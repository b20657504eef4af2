package wait

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Waiter evaluates conditions over watched collections. However many conditions
// wait, there is one watch for each resource and namespace.
type Waiter struct {
	cluster *migration.Cluster
	// watchCtx bounds the watches, which outlive single waits.
	watchCtx context.Context

	mu          sync.Mutex
	subscribers map[subject]map[chan struct{}]struct{}
}

// subject is an object, or with an empty name all objects of a scope.
type subject struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

func New(watchCtx context.Context, cluster *migration.Cluster) *Waiter {
	return &Waiter{cluster: cluster, watchCtx: watchCtx, subscribers: map[subject]map[chan struct{}]struct{}{}}
}

// watch makes sure the collections that conditions look at are listed and
// watched.
func (w *Waiter) watch(ctx context.Context, conditions []migration.Condition) error {
	for _, c := range conditions {
		for _, on := range c.On {
			collection, err := w.cluster.Collection(ctx, on.Resource, on.Namespace)
			if err != nil {
				return err
			}
			collection.Watch(w.watchCtx, func(key string) { w.notify(on.GroupVersionResource, key) })
		}
	}
	return nil
}

func (w *Waiter) notify(resource schema.GroupVersionResource, key string) {
	namespace, name, _ := strings.Cut(key, "/")
	subjects := []subject{{resource, namespace, name}, {resource, namespace, ""}}
	if namespace != "" {
		subjects = append(subjects, subject{resource, "", ""})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sub := range subjects {
		for ch := range w.subscribers[sub] {
			select {
			case ch <- struct{}{}:
			default: // a wake-up is pending already
			}
		}
	}
}

func (w *Waiter) subscribe(conditions []migration.Condition) (wake chan struct{}, unsubscribe func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conditions {
		for _, on := range c.On {
			sub := subject{on.GroupVersionResource, on.Namespace, on.Name}
			if w.subscribers[sub] == nil {
				w.subscribers[sub] = map[chan struct{}]struct{}{}
			}
			w.subscribers[sub][ch] = struct{}{}
		}
	}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range conditions {
			for _, on := range c.On {
				sub := subject{on.GroupVersionResource, on.Namespace, on.Name}
				delete(w.subscribers[sub], ch)
				if len(w.subscribers[sub]) == 0 {
					delete(w.subscribers, sub)
				}
			}
		}
	}
}

// Error says which condition did not come true, and how it stood last.
type Error struct {
	// Text is the condition's.
	Text string
	migration.Status
	// After is the limit that ran out; 0 if the condition failed for good, or
	// the wait was cut off.
	After time.Duration
}

func (e *Error) Error() string {
	if e.After > 0 {
		return fmt.Sprintf("gave up after %s waiting for %s: %s", e.After, e.Text, e.Message)
	}
	return fmt.Sprintf("waiting for %s cannot succeed: %s", e.Text, e.Message)
}

// Wait blocks until every condition is met. Limits count from since. It returns
// a *WaitError for the first condition that failed or ran out of time, or ctx's
// cause.
func (w *Waiter) Wait(ctx context.Context, conditions []migration.Condition, since time.Time) error {
	if len(conditions) == 0 {
		return nil
	}
	if err := w.watch(ctx, conditions); err != nil {
		return err
	}
	wake, unsubscribe := w.subscribe(conditions)
	defer unsubscribe()
	for {
		var limit time.Time
		met := 0
		for i := range conditions {
			c := &conditions[i]
			status := c.Eval(w)
			switch {
			case status.State == migration.Met:
				met++
				continue
			case status.State == migration.Failed:
				return &Error{Text: c.Text, Status: status}
			}
			if c.Timeout > 0 {
				end := since.Add(c.Timeout)
				if !time.Now().Before(end) {
					return &Error{Text: c.Text, Status: status, After: c.Timeout}
				}
				if limit.IsZero() || end.Before(limit) {
					limit = end
				}
			}
		}
		if met == len(conditions) {
			return nil
		}
		// Since Go 1.23 a timer that nobody holds is collected without Stop.
		var timeout <-chan time.Time
		if !limit.IsZero() {
			timeout = time.After(time.Until(limit))
		}
		select {
		case <-ctx.Done():
			for i := range conditions {
				if status := conditions[i].Eval(w); status.State != migration.Met {
					return &CutOffError{Cause: context.Cause(ctx), Text: conditions[i].Text, Status: status}
				}
			}
			return nil
		case <-wake:
		case <-timeout:
		}
	}
}

// CutOffError says what a wait was waiting for when the run ended.
type CutOffError struct {
	Cause  error
	Text   string
	Status migration.Status
}

func (e *CutOffError) Error() string {
	return fmt.Sprintf("%v while waiting for %s: %s", e.Cause, e.Text, e.Status.Message)
}

func (e *CutOffError) Unwrap() error { return e.Cause }

// Get implements View.
func (w *Waiter) Get(ref migration.Ref) *unstructured.Unstructured {
	if collection := w.cluster.Known(ref.Resource, ref.Namespace); collection != nil {
		return collection.Get(ref.Namespace, ref.Name)
	}
	return nil
}

// List implements View.
func (w *Waiter) List(r migration.Resource, namespace string) []*unstructured.Unstructured {
	collection := w.cluster.Known(r, namespace)
	if collection == nil {
		return nil
	}
	all := collection.All()
	if namespace == "" {
		return all
	}
	return slices.DeleteFunc(all, func(obj *unstructured.Unstructured) bool { return obj.GetNamespace() != namespace })
}
