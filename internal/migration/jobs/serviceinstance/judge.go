package serviceinstance

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// judge says whether an object that was recreated is of any use, and whether one
// that is being deleted can go.
func (c checks) judge(ctx context.Context, r reader, live *unstructured.Unstructured) (migration.Assessment, error) {
	var j migration.Assessment
	s := kyma.InstanceOf(live)
	switch {
	case live.GetKind() == kyma.ServiceBinding.Kind && s.Failed.True():
		j.Unusable = "its binding has failed permanently: " + s.Failed.String()
		return j, nil
	case live.GetKind() != kyma.ServiceInstance.Kind:
		return j, nil
	case live.GetDeletionTimestamp() != nil && s.Undeletable:
		// Service Catalog does nothing about it any more.
		j.RemoveFinalizers = []string{kyma.ServiceCatalogFinalizer}
	case s.Undeletable && !s.Provisioned:
		j.Unusable = "Service Catalog does nothing about it any more: " + s.Ready.String()
		j.RemoveFinalizers = []string{kyma.ServiceCatalogFinalizer}
	case s.FailedForGood():
		j.Unusable = "its provisioning has failed permanently: " + s.Failed.String()
	case s.Unknown:
		start, err := c.brokerStart(ctx, r)
		if err != nil {
			return j, err
		}
		others, err := busy(ctx, r, live)
		if err != nil {
			return j, err
		}
		// The restart that follows would let it forget what it does for others.
		if !others {
			j.Unusable = unknown
		}
		// A process that began later answers that the instance is gone, and its deletion
		// ends by itself.
		if !others && !start.IsZero() && !start.After(s.Since) {
			j.RemoveFinalizers = []string{kyma.ServiceCatalogFinalizer}
		}
	case s.Polling:
		start, err := c.brokerStart(ctx, r)
		if err != nil {
			return j, err
		}
		if s.Lost(start) {
			// Service Catalog asks for its outcome for seven days, even if it is
			// to delete the instance.
			j.Unusable = "application-broker was restarted while it provisioned it, and has forgotten that"
			j.RemoveFinalizers = []string{kyma.ServiceCatalogFinalizer}
		}
	}
	// As before the first deletion: their owners are not to take it for gone.
	j.RemoveFinalizers = append(j.RemoveFinalizers, foreignFinalizers(live)...)
	return j, nil
}

// brokerStart reads when application-broker began to run.
func (c checks) brokerStart(ctx context.Context, r reader) (time.Time, error) {
	var all []*unstructured.Unstructured
	err := r.Each(ctx, pods, c.options.integrationNamespace, migration.ListOptions{}, func(pod *unstructured.Unstructured) error {
		all = append(all, pod)
		return nil
	})
	return brokerStart(all), err
}

// busy says whether application-broker is in an operation for another instance.
func busy(ctx context.Context, r reader, instance *unstructured.Unstructured) (bool, error) {
	k, err := servedKinds(ctx, r)
	if err != nil {
		return false, err
	}
	ours := map[id]bool{}
	err = r.Each(ctx, k.class.Resource, "", migration.ListOptions{}, func(class *unstructured.Unstructured) error {
		ours[idOf(class)] = specOf(class, "serviceBrokerName") == kyma.ApplicationBroker
		return nil
	})
	if err != nil {
		return false, err
	}
	busy := false
	err = r.Each(ctx, k.instance.Resource, "", migration.ListOptions{}, func(other *unstructured.Unstructured) error {
		busy = busy || idOf(other) != idOf(instance) && worksOn(other, ours)
		return nil
	})
	return busy, err
}

// stuck is met when the deletion of an instance waits for nothing any more, and
// nobody looks: Service Catalog does not notice that the last binding is gone,
// and looks again upon any change of the instance, or after five minutes
// (docs/migration/domain.md §4.7).
func (c checks) stuck(ref migration.Ref) migration.Condition {
	return migration.Condition{
		Text: "it to stall", On: []migration.Subject{ref.Subject(), {GroupKind: kyma.ServiceBinding, Namespace: ref.Namespace}},
		Eval: func(v migration.View) migration.Status {
			obj := v.Get(ref.Subject())
			if obj == nil || obj.GetDeletionTimestamp() == nil || kyma.InstanceOf(obj).Ready.Reason != kyma.ReasonBlocked {
				return migration.Status{}
			}
			for _, binding := range v.List(kyma.ServiceBinding, ref.Namespace) {
				if specOf(binding, "instanceRef", "name") == ref.Name {
					return migration.Status{}
				}
			}
			return migration.Status{State: migration.Met}
		},
	}
}
