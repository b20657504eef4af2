package eventservice

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
)

// Triggers are the Subscriptions of a cluster: its Knative Triggers, in any
// namespace, of any Broker, ready or not (domain.md §3).
//
// They are listed, in pages, when somebody asks, and calls at the same time share
// one list. Most clients never ask; a watch of all Triggers by each Application's
// event-service would cost the API server more, and keep them all in memory.
type Triggers struct {
	served  *k8sutil.Served
	lister  *k8sutil.Lister
	timeout time.Duration
	flight  singleflight.Group
}

// NewTriggers reads through cfg; one list may take up to timeout.
func NewTriggers(cfg *rest.Config, timeout time.Duration) (*Triggers, error) {
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
	t := &Triggers{lister: lister, timeout: timeout}
	t.served = k8sutil.NewServed(disco, t.retry)
	return t, nil
}

func (t *Triggers) retry(ctx context.Context, op func(context.Context) error) error {
	return k8sutil.Retry(ctx, t.timeout/2, nil, op)
}

// Subscribed implements Subscriptions.
func (t *Triggers) Subscribed(ctx context.Context, application string) ([]SubscribedEvent, error) {
	// The list goes on when one of its callers leaves.
	result := t.flight.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.timeout)
		defer cancel()
		return t.list(ctx)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		events := r.Val.(map[string]map[SubscribedEvent]bool)[application]
		list := make([]SubscribedEvent, 0, len(events))
		for e := range events {
			list = append(list, e)
		}
		slices.SortFunc(list, func(a, b SubscribedEvent) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
		})
		return list, nil
	}
}

// list returns what is subscribed, by source.
func (t *Triggers) list(ctx context.Context) (map[string]map[SubscribedEvent]bool, error) {
	resource, served, err := t.served.Find(ctx, kyma.Trigger)
	if err != nil {
		t.served.Forget()
		return nil, fmt.Errorf("cannot find the API of Triggers: %w", err)
	}
	if !served {
		t.served.Forget() // it may come
		return nil, fmt.Errorf("the API server serves no kind Trigger (component %s)", kyma.Component(kyma.Trigger))
	}
	var bySource map[string]map[SubscribedEvent]bool
	_, err = k8sutil.Page(ctx, t.lister.Source(resource, ""), metav1.ListOptions{}, t.retry,
		func() { bySource = map[string]map[SubscribedEvent]bool{} },
		func(obj *unstructured.Unstructured) error {
			source, e, ok := subscribedBy(obj)
			if !ok {
				return nil
			}
			if bySource[source] == nil {
				bySource[source] = map[SubscribedEvent]bool{}
			}
			bySource[source][e] = true
			return nil
		})
	if err != nil {
		t.served.Forget() // the version may have gone
		return nil, fmt.Errorf("cannot list Triggers: %w", err)
	}
	return bySource, nil
}

// subscribedBy reads the filter of a Trigger; false if it names no source. One
// without a type gets every event of its source, which has no name here.
func subscribedBy(trigger *unstructured.Unstructured) (string, SubscribedEvent, bool) {
	attributes, _, err := unstructured.NestedMap(trigger.Object, "spec", "filter", "attributes")
	if err != nil {
		return "", SubscribedEvent{}, false
	}
	source, _ := attributes["source"].(string)
	name, _ := attributes["type"].(string)
	version, _ := attributes[versionExtension].(string)
	return source, SubscribedEvent{Name: name, Version: version}, source != ""
}
