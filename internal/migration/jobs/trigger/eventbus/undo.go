package eventbus

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// getter is what RefuseUndo needs of a migration.Cluster.
type getter interface {
	Get(context.Context, migration.Ref) (*unstructured.Unstructured, error)
}

// RefuseUndo says why deleted Subscriptions cannot be restored now: one of which
// nobody takes notice brings no events.
func RefuseUndo(ctx context.Context, c getter, changes []migration.Change) ([]migration.Finding, error) {
	restores, byHand := false, false
	for i := range changes {
		if changes[i].Verb != migration.Delete {
			continue
		}
		switch changes[i].Ref.GVK().GroupKind() {
		case kyma.Subscription:
			restores = true
		case kyma.ChannelSubscription:
			byHand = true // what the controller would make is restored as well
		}
	}
	if !restores || byHand {
		return nil, nil
	}
	ref := ControllerRef
	controller, err := c.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if controller != nil && Replicas(controller) > 0 {
		return nil, nil
	}
	return []migration.Finding{{
		ID: "undo-needs-controller", Severity: migration.Error, Object: ref.String(),
		Problem: "does not run: without it, Subscriptions that are restored bring no events",
		Note:    "Undo eventbus-scaledown first. Then undo trigger-sync again, then the other jobs.",
		Command: "eventmesh-migrate undo eventbus-scaledown",
	}}, nil
}
