package readiness

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
)

// All is the Tally of all Subscriptions that a cache has.
type All struct {
	Tally
	// Cached reads from the cache, which gets changes in their order.
	Cached client.Reader
	// News is called when Tell may have more to say.
	News func()
}

// Await begins to wait for all that exist, in a round.
func (a *All) Await(ctx context.Context, round int) error {
	all, err := a.list(ctx)
	if err != nil {
		return err
	}
	var keys []types.NamespacedName
	for _, s := range all {
		keys = append(keys, s.NamespacedName)
	}
	if a.Expect(round, keys) {
		a.News()
	}
	return nil
}

// list are the Subscriptions that the cache has: all up to the newest of them.
func (a *All) list(ctx context.Context) (all []Subscription, err error) {
	var list stored.SubscriptionList
	if err := a.Cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range list.Items {
		all = append(all, lookedAt(&list.Items[i].Subscription, false))
	}
	return all, nil
}

func lookedAt(s *eventingv1alpha2.Subscription, invalid bool) Subscription {
	return Subscription{
		NamespacedName: client.ObjectKeyFromObject(s), UID: s.UID, Generation: s.Generation, Version: s.ResourceVersion,
		Out: invalid || !s.DeletionTimestamp.IsZero() || s.Labels[eventingv1alpha2.SkipSwitchLabel] == "true",
	}
}

// Take takes what was found of a Subscription in a round: whether its spec is invalid, and on which
// backends it is ready.
func (a *All) Take(round int, s *eventingv1alpha2.Subscription, invalid bool, ready map[operatorv1alpha1.BackendType]bool) {
	if a.Found(round, lookedAt(s, invalid), ready) {
		a.News()
	}
}

// Gone forgets a Subscription that does not exist any more.
func (a *All) Gone(key types.NamespacedName) {
	if a.Forget(key) {
		a.News()
	}
}

// Tell returns what the operator is to be told in a round.
func (a *All) Tell(ctx context.Context, round int) (backend.Versions, error) {
	if !a.Due() {
		return a.Claims(), nil
	}
	all, err := a.list(ctx)
	if err != nil {
		return nil, err
	}
	return a.Complete(round, all), nil
}
