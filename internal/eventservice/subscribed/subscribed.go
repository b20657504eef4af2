// Package subscribed lists the events of an Application that have a subscriber.
package subscribed

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
)

// Event is one kind of event that somebody has subscribed to.
type Event struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Kind is a kind whose objects subscribe to events.
type Kind struct {
	schema.GroupKind
	// From is the component that brings the kind.
	From string
	// Read returns the events of an object by their source.
	Read func(*unstructured.Unstructured) map[string][]Event
	// Also is what the events of an application may be found under, in addition to its name; it is
	// optional.
	Also func(application string) (sources []string)
}

// Lists know what is subscribed from the objects of one kind, in any namespace, ready
// or not.
//
// They are listed, in pages, when a client asks. Calls at the same time share one
// list, and its result serves for some seconds. Most clients never ask; a watch of
// all objects by each Application's event-service would cost the API server more,
// and keep them all in memory.
type Lists struct {
	kind    Kind
	served  *k8sutil.Served
	lister  *k8sutil.Lister
	timeout time.Duration
	flight  singleflight.Group

	mu   sync.Mutex
	last listed
}

// listed is the result of one list, and until when it is served.
type listed struct {
	bySource map[string]map[Event]bool
	err      error
	until    time.Time
}

const (
	// listFresh is how long a list is served. A client that polls each second makes
	// one list in ten calls instead of ten.
	listFresh = 10 * time.Second
	// failureFresh is the same for a list that failed. It is what Retry-After says:
	// clients that ask again at once cost the API server nothing.
	failureFresh = legacy.RetryAfter
)

// New knows Knative's Triggers, of any Broker (docs/migration/domain.md §3.7). It reads through
// cfg; one list may take up to timeout.
func New(cfg *rest.Config, timeout time.Duration) (*Lists, error) {
	return Of(cfg, timeout, Kind{GroupKind: knative.Trigger, From: knative.Component, Read: func(trigger *unstructured.Unstructured) map[string][]Event {
		source, e, ok := subscribedBy(trigger)
		if !ok {
			return nil // it is no Application's
		}
		return map[string][]Event{source: {e}}
	}})
}

// Of knows the objects of a kind.
func Of(cfg *rest.Config, timeout time.Duration, kind Kind) (*Lists, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	lister, err := k8sutil.NewLister(cfg, client)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	t := &Lists{kind: kind, lister: lister, timeout: timeout}
	t.served = k8sutil.NewServed(disco, t.retry)
	return t, nil
}

func (t *Lists) retry(ctx context.Context, op func(context.Context) error) error {
	return k8sutil.Retry(ctx, t.timeout/2, nil, op)
}

// Subscribed returns the events of one Application, sorted, each once.
func (t *Lists) Subscribed(ctx context.Context, application string) ([]Event, error) {
	last := t.current()
	if last == nil {
		// The list continues when one of its callers leaves.
		result := t.flight.DoChan("", func() (any, error) { return t.refresh(context.WithoutCancel(ctx)), nil })
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case r := <-result:
			last = r.Val.(*listed)
		}
	}
	if last.err != nil {
		return nil, last.err
	}
	found := maps.Clone(last.bySource[application])
	if found == nil {
		found = map[Event]bool{}
	}
	if t.kind.Also != nil {
		for _, source := range t.kind.Also(application) {
			maps.Copy(found, last.bySource[source])
		}
	}
	events := slices.Collect(maps.Keys(found))
	slices.SortFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return events, nil
}

// current is the last list, nil if it is too old.
func (t *Lists) current() *listed {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !time.Now().Before(t.last.until) {
		return nil
	}
	last := t.last
	return &last
}

// refresh lists, unless another call has done so a moment ago.
func (t *Lists) refresh(ctx context.Context) *listed {
	if last := t.current(); last != nil {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	next := listed{}
	next.bySource, next.err = t.list(ctx)
	fresh := listFresh
	if next.err != nil {
		fresh = failureFresh
	}
	next.until = time.Now().Add(fresh)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = next
	return &next
}

// list returns what is subscribed, by source.
func (t *Lists) list(ctx context.Context) (map[string]map[Event]bool, error) {
	resource, served, err := t.served.Find(ctx, t.kind.GroupKind)
	if err != nil {
		t.served.Forget()
		return nil, fmt.Errorf("cannot find the API of %ss: %w", t.kind.Kind, err)
	}
	if !served {
		t.served.Forget() // it may come
		return nil, fmt.Errorf("the API server serves no kind %s (component %s)", t.kind.Kind, t.kind.From)
	}
	var bySource map[string]map[Event]bool
	_, err = k8sutil.Page(ctx, t.lister.Source(resource, ""), metav1.ListOptions{}, t.retry,
		func() { bySource = map[string]map[Event]bool{} },
		func(obj *unstructured.Unstructured) error {
			for source, events := range t.kind.Read(obj) {
				for _, e := range events {
					if bySource[source] == nil {
						bySource[source] = map[Event]bool{}
					}
					bySource[source][e] = true
				}
			}
			return nil
		})
	if err != nil {
		t.served.Forget() // the version may have gone
		return nil, fmt.Errorf("cannot list %ss: %w", t.kind.Kind, err)
	}
	return bySource, nil
}

// subscribedBy reads the filter of a Trigger; false if it names no source. One
// without a type gets every event of its source, which has no name here.
func subscribedBy(trigger *unstructured.Unstructured) (string, Event, bool) {
	attributes, _, err := unstructured.NestedMap(trigger.Object, "spec", "filter", "attributes")
	if err != nil {
		return "", Event{}, false
	}
	source, _ := attributes[knative.SourceAttribute].(string)
	name, _ := attributes[knative.TypeAttribute].(string)
	version, _ := attributes[knative.EventTypeVersionAttribute].(string)
	return source, Event{Name: name, Version: version}, source != ""
}
