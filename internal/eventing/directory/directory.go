// Package directory indexes the Subscriptions of a cluster by the events that they select.
//
// It reports the resourceVersion up to which it knows all Subscriptions, so that a caller that
// waits for a change compares versions instead of Subscriptions.
package directory

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/plan"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// readBudget is how long one page of Subscriptions is tried.
const readBudget = 10 * time.Second

var subscriptions = schema.GroupVersionResource{Group: eventingv1alpha2.GroupVersion.Group, Version: eventingv1alpha2.GroupVersion.Version, Resource: "subscriptions"}

// Directory is made by Open. Its methods can be called at the same time.
type Directory struct {
	in *k8sutil.Collection

	mu sync.RWMutex
	// wants has who wants the events of a type, and types the types of each Subscription.
	wants map[string][]want
	types map[types.NamespacedName][]string
	// newest is the greatest resource version of a Subscription.
	newest string
}

// want is a Subscription that wants the events of a type from a source; "" is any.
type want struct {
	source, eventType string
	delivery.Recipient
}

// Open reads all Subscriptions from the API server, and watches them until ctx ends.
func Open(ctx context.Context, client dynamic.Interface, log *zap.Logger) (*Directory, error) {
	d := &Directory{wants: map[string][]want{}, types: map[types.NamespacedName][]string{}}
	warn := func(err error) { log.Warn("cannot read Subscriptions, retrying", zap.Error(err)) }
	d.in = k8sutil.NewCollection(client.Resource(subscriptions), metav1.ListOptions{}, onlySpec, k8sutil.Retrying(readBudget, warn))
	if err := d.in.List(ctx); err != nil {
		return nil, err
	}
	d.in.Each(func(u *unstructured.Unstructured) {
		d.set(types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}, u)
	})
	d.in.Watch(ctx, func(key string) {
		namespace, name, _ := strings.Cut(key, "/")
		d.set(types.NamespacedName{Namespace: namespace, Name: name}, d.in.Get(namespace, name))
	})
	return d, nil
}

// onlySpec leaves of a Subscription what says which events it wants, and where.
func onlySpec(u *unstructured.Unstructured) {
	for name := range u.Object {
		if name != "apiVersion" && name != "kind" && name != "metadata" && name != "spec" {
			delete(u.Object, name)
		}
	}
	u.SetAnnotations(nil)
	u.SetLabels(nil)
}

// Version is the resource version up to which all changes of Subscriptions are known.
func (d *Directory) Version() string { return d.in.Version() }

// Newest is the greatest resource version of a Subscription that is known; "" if there was none.
func (d *Directory) Newest() string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.newest
}

// Match returns the Subscriptions that want the events of a source and a type.
func (d *Directory) Match(source, eventType string) (all []delivery.Recipient) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, w := range d.wants[eventType] {
		// What one Subscription wants of a type is side by side.
		another := len(all) == 0 || all[len(all)-1].Subscription != w.Subscription
		if another && (w.source == "" || w.source == source) {
			all = append(all, w.Recipient)
		}
	}
	return all
}

// set takes over what a Subscription wants now: nothing if it is nil, is being deleted, or has
// errors.
func (d *Directory) set(key types.NamespacedName, u *unstructured.Unstructured) {
	of := wantsOf(u)
	d.mu.Lock()
	defer d.mu.Unlock()
	if u != nil && k8sutil.IsBefore(d.newest, u.GetResourceVersion()) {
		d.newest = u.GetResourceVersion()
	}
	for _, eventType := range d.types[key] {
		left := slices.DeleteFunc(slices.Clone(d.wants[eventType]), func(w want) bool { return w.Subscription == key })
		if len(left) == 0 {
			delete(d.wants, eventType)
		} else {
			d.wants[eventType] = left
		}
	}
	delete(d.types, key)
	for _, w := range of {
		d.wants[w.eventType] = append(d.wants[w.eventType], w)
		d.types[key] = append(d.types[key], w.eventType)
	}
}

// wantsOf is what a Subscription wants.
func wantsOf(u *unstructured.Unstructured) (all []want) {
	if u == nil || u.GetDeletionTimestamp() != nil {
		return nil
	}
	var s stored.Subscription
	raw, err := json.Marshal(u.Object)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil || s.Problem != nil {
		return nil // its status says so
	}
	p, problems := plan.Of(&s.Subscription)
	if len(problems) > 0 {
		return nil
	}
	to := delivery.Recipient{Subscription: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, Settings: p.MeshSettings(&s.Subscription)}
	for _, t := range s.Spec.Types {
		source, eventType := backend.Matched(s.Spec.TypeMatching == eventingv1alpha2.Exact, s.Spec.Source, t)
		all = append(all, want{source, eventType, to})
	}
	return all
}
