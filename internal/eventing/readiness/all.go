package readiness

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// All is the Tally of all Subscriptions of a cluster.
type All struct {
	Tally
	// Live reads from the API server. A cache that is being read again has some objects as they
	// are, and others as they were.
	Live client.Reader
	// News is called when Tell may have more to say.
	News func()
}

// List reads all from the API server, and the resource version in which these are all.
func (a *All) List(ctx context.Context) (all []Subscription, version string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(eventingv1alpha2.GroupVersion.WithKind("SubscriptionList"))
	for {
		if err := a.Live.List(ctx, list, client.Limit(k8sutil.PageSize), client.Continue(list.Continue)); err != nil {
			return nil, "", fmt.Errorf("cannot list Subscriptions: %w", err)
		}
		for i := range list.Items {
			all = append(all, lookedAt(&list.Items[i], false))
		}
		if list.Continue == "" {
			return all, list.ResourceVersion, nil
		}
	}
}

func lookedAt(s metav1.Object, invalid bool) Subscription {
	return Subscription{
		NamespacedName: types.NamespacedName{Namespace: s.GetNamespace(), Name: s.GetName()}, UID: s.GetUID(), Generation: s.GetGeneration(),
		Out: invalid || !s.GetDeletionTimestamp().IsZero() || s.GetLabels()[eventingv1alpha2.SkipSwitchLabel] == "true",
	}
}

// Take takes what was found of a Subscription in a round: whether its spec is invalid, and on which
// backends it is ready.
func (a *All) Take(round int, s metav1.Object, invalid bool, ready map[operatorv1alpha1.BackendType]bool) {
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

// Tell returns what the operator is to be told in a round. With an error, that is what it was told
// before.
func (a *All) Tell(ctx context.Context, round int) (backend.Versions, error) {
	if !a.Due() {
		return a.Claims(), nil
	}
	all, version, err := a.List(ctx)
	if err != nil {
		return a.Claims(), err
	}
	var keys []types.NamespacedName
	for _, s := range all {
		keys = append(keys, s.NamespacedName)
	}
	a.Expect(round, keys)
	return a.Complete(round, all, version), nil
}
