package wait

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Waiter evaluates conditions over watched collections. However many conditions
// wait, there is one watch for each resource and namespace.
type Waiter struct {
	cluster *migration.Cluster
	// watchCtx bounds the watches, which outlive single waits.
	watchCtx context.Context

	mu          sync.Mutex
	subscribers map[migration.Subject]map[chan struct{}]struct{}
	// served are the kinds that conditions have asked for and the API server serves.
	served map[schema.GroupKind]migration.Resource
}

// New returns a Waiter that reads through the cluster. Its watches last until watchCtx ends.
func New(watchCtx context.Context, cluster *migration.Cluster) *Waiter {
	return &Waiter{
		cluster: cluster, watchCtx: watchCtx,
		subscribers: map[migration.Subject]map[chan struct{}]struct{}{}, served: map[schema.GroupKind]migration.Resource{},
	}
}

// watch makes sure the collections that conditions look at are listed and
// watched. It fails if a kind of a condition is not served.
func (w *Waiter) watch(ctx context.Context, conditions []migration.Condition) error {
	for i := range conditions {
		c := &conditions[i]
		for n, on := range subjectsOf(c) {
			r, served, err := w.resource(ctx, on.GroupKind)
			switch {
			case err != nil:
				return err
			case !served && n < len(c.On):
				return unserved(c, on.GroupKind)
			case !served:
				continue
			}
			collection, err := w.cluster.Collection(ctx, r, on.Namespace)
			if err != nil {
				return err
			}
			w.follow(collection, on.GroupKind)
		}
	}
	return nil
}

// subjectsOf returns all that a condition looks at, first those of On.
func subjectsOf(c *migration.Condition) []migration.Subject {
	if len(c.OnIfServed) == 0 {
		return c.On
	}
	return slices.Concat(c.On, c.OnIfServed)
}

// follow watches a collection of the kind.
func (w *Waiter) follow(collection *k8sutil.Collection, gk schema.GroupKind) {
	collection.Watch(w.watchCtx, func(key string) { w.notify(gk, key) })
}

// resource says how a kind is served.
func (w *Waiter) resource(ctx context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	if r, ok := w.known(gk); ok {
		return r, true, nil
	}
	r, served, err := w.cluster.Resolve(ctx, gk)
	if err != nil || !served {
		return r, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.served[gk] = r
	return r, true, nil
}

func (w *Waiter) known(gk schema.GroupKind) (migration.Resource, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.served[gk]
	return r, ok
}

// unserved is the failure of a condition on a kind that is not served: it cannot become
// true. A plan refuses to get there, but a journal may hold changes from a time when the
// kind was served.
func unserved(c *migration.Condition, gk schema.GroupKind) *Error {
	install := "Install what serves it."
	if c.Unserved != nil {
		install = c.Unserved(gk)
	}
	return &Error{Text: c.Text, Status: migration.Status{
		State:   migration.Failed,
		Message: fmt.Sprintf("the API server serves no kind %s (%s)", gk.Kind, gk.Group),
		Note:    install + " Then run the job again. To see what is served:",
		Command: migration.Kubectl("", "api-resources", "--api-group="+gk.Group),
	}}
}

func (w *Waiter) notify(gk schema.GroupKind, key string) {
	namespace, name, _ := strings.Cut(key, "/")
	subjects := []migration.Subject{{GroupKind: gk, Namespace: namespace, Name: name}, {GroupKind: gk, Namespace: namespace}}
	if namespace != "" {
		subjects = append(subjects, migration.Subject{GroupKind: gk})
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
	for i := range conditions {
		for _, sub := range subjectsOf(&conditions[i]) {
			if w.subscribers[sub] == nil {
				w.subscribers[sub] = map[chan struct{}]struct{}{}
			}
			w.subscribers[sub][ch] = struct{}{}
		}
	}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range conditions {
			for _, sub := range subjectsOf(&conditions[i]) {
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
	// After is the limit that ran out; 0 if the condition failed permanently, or
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
// an *Error for the first condition that failed or ran out of time, or ctx's
// cause. It fails at once if a kind that a condition looks at is not served.
func (w *Waiter) Wait(ctx context.Context, conditions []migration.Condition, since time.Time) error {
	return w.WaitTelling(ctx, conditions, since, func(string) {})
}

// WaitTelling is Wait, and tells why the first condition that is not met is not, each time that it
// has looked.
func (w *Waiter) WaitTelling(ctx context.Context, conditions []migration.Condition, since time.Time, tell func(reason string)) error {
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
		met, reason := 0, ""
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
			reason = cmp.Or(reason, status.Message)
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
		tell(reason)
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
func (w *Waiter) Get(s migration.Subject) *unstructured.Unstructured {
	if r, ok := w.known(s.GroupKind); ok {
		return w.get(migration.Ref{Resource: r, Namespace: s.Namespace, Name: s.Name})
	}
	return nil
}

// List implements View.
func (w *Waiter) List(gk schema.GroupKind, namespace string) []*unstructured.Unstructured {
	if r, ok := w.known(gk); ok {
		return w.list(r, namespace)
	}
	return nil
}

func (w *Waiter) get(ref migration.Ref) *unstructured.Unstructured {
	if collection := w.cluster.Known(ref.Resource, ref.Namespace); collection != nil {
		return collection.Get(ref.Namespace, ref.Name)
	}
	return nil
}

func (w *Waiter) list(r migration.Resource, namespace string) []*unstructured.Unstructured {
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
