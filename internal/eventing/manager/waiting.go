package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fence"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
)

// waitingLook is how often an operator that does not lead looks at Eventings without a status.
const waitingLook = time.Second

// waiting says in Eventings why nothing happens while a former operator still has the Lease, which
// it could not release: its permissions were deleted with it. One that leads writes a status at
// once, so only those that are without one for a while are told.
type waiting struct {
	// client is not stopped by the fence, which refuses all writes of an operator that does not
	// lead.
	client client.Client
	// cached reads without a request: the second of two operators waits for as long as it runs.
	cached  client.Reader
	lock    resourcelock.Interface
	elected <-chan struct{}
	log     *zap.Logger

	// record is what the Lease said when it was first seen so here, at since. The election counts
	// from when it saw it, which is not later, and not by the clock of another machine.
	record string
	since  time.Time
	// seen are the Eventings that had no status at the last look.
	seen map[types.UID]bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *waiting) NeedLeaderElection() bool { return false }

// Start looks until this operator leads.
func (w *waiting) Start(ctx context.Context) error {
	for tick := time.NewTicker(waitingLook); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-w.elected:
			tick.Stop()
			return nil
		case <-tick.C:
		}
		if err := w.look(ctx, time.Now()); err != nil && ctx.Err() == nil {
			w.log.Error("cannot say that the Lease is awaited", zap.Error(err))
		}
	}
}

func (w *waiting) look(ctx context.Context, now time.Time) error {
	var all stored.EventingList
	if err := w.cached.List(ctx, &all); err != nil {
		return err
	}
	var silent []*stored.Eventing
	seen := map[types.UID]bool{}
	for i := range all.Items {
		e := &all.Items[i]
		if e.Status.State != "" || len(e.Status.Conditions) > 0 || e.DeletionTimestamp != nil {
			continue
		}
		if seen[e.UID] = true; w.seen[e.UID] {
			silent = append(silent, e.DeepCopy())
		}
	}
	w.seen = seen
	if len(seen) == 0 {
		return nil
	}
	record, raw, err := w.lock.Get(ctx)
	if apierrors.IsNotFound(err) || err == nil && record.HolderIdentity == "" {
		return nil // it is about to be taken
	}
	if err != nil {
		return err
	}
	if w.record != string(raw) {
		w.record, w.since = string(raw), now
	}
	var errs []error
	for _, e := range silent {
		errs = append(errs, w.tell(ctx, e, record.HolderIdentity))
	}
	return errors.Join(errs...)
}

func (w *waiting) tell(ctx context.Context, e *stored.Eventing, holder string) error {
	before := e.DeepCopy()
	e.Status.State = operatorv1alpha1.StateProcessing
	meta.SetStatusCondition(&e.Status.Conditions, metav1.Condition{
		Type: operatorv1alpha1.ConditionServed, Status: metav1.ConditionFalse, Reason: operatorv1alpha1.ReasonWaitsForLease, ObservedGeneration: e.Generation,
		Message: fmt.Sprintf("The operator waits for Lease %s, which %s has: a former operator that has ended without releasing it, or another one. It takes the Lease over by %s unless that one renews it.",
			w.lock.Describe(), holder, fence.TakenOver(w.since).UTC().Format(time.TimeOnly+" MST")),
	})
	err := w.client.Status().Patch(ctx, e, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // somebody else has said something
	}
	return err
}
