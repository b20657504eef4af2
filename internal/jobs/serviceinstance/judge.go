package serviceinstance

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// judge says whether an object that was made again is of any use, and whether one
// that is being deleted can go.
func judge(ctx context.Context, c reader, o options, live *unstructured.Unstructured) (migration.Assessment, error) {
	var j migration.Assessment
	s := kyma.InstanceOf(live)
	switch {
	case live.GetKind() == kyma.ServiceBinding.Kind && s.Failed.True():
		j.Unusable = "its binding has failed for good: " + s.Failed.String()
		return j, nil
	case live.GetKind() != kyma.ServiceInstance.Kind:
		return j, nil
	case live.GetDeletionTimestamp() != nil && s.Undeletable:
		// Service Catalog does nothing about it any more.
		j.RemoveFinalizers = []string{kyma.ServiceCatalogFinalizer}
	case s.FailedForGood():
		j.Unusable = "its provisioning has failed for good: " + s.Failed.String()
	case s.Polling:
		var all []*unstructured.Unstructured
		err := c.Each(ctx, pods, o.integrationNamespace, migration.ListOptions{}, func(pod *unstructured.Unstructured) error {
			all = append(all, pod)
			return nil
		})
		if err != nil {
			return j, err
		}
		if s.Lost(brokerStart(all)) {
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

// stalled is met when the deletion of an instance waits for nothing any more, and
// nobody looks: Service Catalog does not notice that the last binding is gone,
// and looks again upon any change of the instance, or after five minutes
// (docs/domain.md §4.7).
func (c checks) stalled(ref migration.Ref) migration.Condition {
	bindings := c.binding.Ref(ref.Namespace, "")
	return migration.Condition{
		Text: "it to stall", On: []migration.Ref{ref, bindings},
		Eval: func(v migration.View) migration.Status {
			obj := v.Get(ref)
			if obj == nil || obj.GetDeletionTimestamp() == nil || kyma.InstanceOf(obj).Ready.Reason != kyma.ReasonBlocked {
				return migration.Status{}
			}
			for _, binding := range v.List(bindings.Resource, ref.Namespace) {
				if specOf(binding, "instanceRef", "name") == ref.Name {
					return migration.Status{}
				}
			}
			return migration.Status{State: migration.Met}
		},
	}
}
