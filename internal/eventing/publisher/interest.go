package publisher

import (
	"context"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

var subscriptionKind = eventingv1alpha2.GroupVersion.WithResource("subscriptions")

// interest knows which events somebody has subscribed to, by the Subscriptions of the cluster. It
// is for the metrics alone: an event is published whatever it says.
//
// NATS does not tell. For an event without a consumer, nats-server 2.15.3 skips a sequence of the
// stream, remembers the id, and answers with that sequence: the acknowledgment is the same as that
// of an event that was stored (processJetStreamMsg, noInterest). The Broker answers with 2xx, too.
//
// A Subscription counts from its creation on, and until it is gone. Its consumer is there a moment
// later, and not at all while the Subscription is invalid.
type interest struct {
	mu sync.RWMutex
	// known is false until the Subscriptions were read.
	known bool
	// of has how many Subscriptions ask for each kind, and by the kinds of each by its key.
	of map[kind]int
	by map[string][]kind
}

// kind is a type of a source; of any source if that is "".
type kind struct{ source, eventType string }

// none tells whether nobody has subscribed to an event. It is false while that cannot be known.
func (i *interest) none(source, eventType string) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.known && i.of[kind{source, eventType}] == 0 && i.of[kind{"", eventType}] == 0
}

// set notes what a Subscription asks for; nothing if it is gone. Most changes are about its status.
func (i *interest) set(key string, kinds []kind) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.by[key]
	if slices.Equal(before, kinds) {
		return
	}
	if i.of == nil {
		i.of, i.by = map[kind]int{}, map[string][]kind{}
	}
	for _, k := range kinds {
		i.of[k]++
	}
	for _, k := range before {
		if i.of[k]--; i.of[k] == 0 {
			delete(i.of, k)
		}
	}
	if i.by[key] = kinds; len(kinds) == 0 {
		delete(i.by, key)
	}
}

// follow follows the Subscriptions until ctx ends.
func (i *interest) follow(ctx context.Context, client dynamic.Interface, log *zap.Logger) {
	all := k8sutil.NewCollection(client.Resource(subscriptionKind), metav1.ListOptions{},
		func(obj *unstructured.Unstructured) { delete(obj.Object, "status") }, retrying(log, "Subscriptions"))
	var warn sync.Once
	ok := listed(ctx, all, log, "Subscriptions", func(err error) {
		warn.Do(func() {
			log.Warn("may not read Subscriptions: events that nobody has subscribed to are not counted as such. Install the Roles of the chart eventing-manager", zap.Error(err))
		})
	})
	if !ok {
		return
	}
	all.Each(func(obj *unstructured.Unstructured) { i.set(k8sutil.Key(obj), kindsOf(obj)) })
	i.mu.Lock()
	i.known = true
	i.mu.Unlock()
	all.Watch(ctx, func(key string) {
		namespace, name, _ := strings.Cut(key, "/")
		i.set(key, kindsOf(all.Get(namespace, name)))
	})
}

// kindsOf are the events that a Subscription asks for; none of nil.
func kindsOf(obj *unstructured.Unstructured) (kinds []kind) {
	if obj == nil {
		return nil
	}
	spec, err := specOf(obj)
	if err != nil {
		return nil // stored by another version: the controller cannot read it either
	}
	for _, t := range spec.Types {
		source, eventType := backend.Matched(spec.TypeMatching == eventingv1alpha2.Exact, spec.Source, t)
		kinds = append(kinds, kind{source, eventType})
	}
	return kinds
}
