package engine

import (
	"context"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// write makes one write: within the lock's deadline, repeated while it fails for
// a moment. ctx ending stops further attempts, never one in flight.
func (w *writer) write(ctx context.Context, op func(context.Context) error) error {
	return k8sutil.Retry(ctx, retryBudget, w.notify(), w.account.Watch(func(ctx context.Context) error {
		if err := checkDecision(ctx); err != nil {
			return err
		}
		call, cancel, err := w.guard(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		return op(call)
	}))
}

// writer makes the writes of one run. It knows no journal.
type writer struct {
	log *zap.Logger
	job migration.Job
	// client writes, reader cannot.
	client, reader dynamic.Interface
	cluster        *migration.Cluster
	findings       *findings
	ignored        map[string]bool
	// read repeats a read that failed for a moment.
	read    func(context.Context, func(context.Context) error) error
	notify  func() func(error)
	account *k8sutil.Account
	// guard returns the context of one write, which ends before the lock does.
	guard func(context.Context) (context.Context, context.CancelFunc, error)
	// restored says whether the UID is that of an object which the run deleted.
	restored func(types.UID) bool
}
