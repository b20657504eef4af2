package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/connection"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fence"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

const (
	// purgeSoon lets the deletions of many Subscriptions come together.
	purgeSoon = 200 * time.Millisecond
	// purgeAgain is when a purge is repeated that left something, or failed.
	purgeAgain = 15 * time.Second
	// purgeTaken is how often is looked for what all have taken, where NATS does not delete it, and
	// purgeTight is that while it should go soon. It is deleted when two looks say so.
	purgeTaken, purgeTight = 5 * time.Second, time.Second
)

// purges deletes what consumers leave that are gone, or that have other filters now, and what all
// have taken, where NATS does not do that.
type purges struct {
	queue
	connection *connection.Connection
	lock       *fence.Fence
	log        *zap.Logger
	// state is that of the controller.
	state func() state

	mu sync.Mutex
	// filters are those that a consumer had and has no more.
	filters map[string]bool
	// all: consumers may have gone that nobody here knows of.
	all bool
	// before is what several servers said. Only reconcile uses it.
	before stream.Look
}

// purgeKey is the one key of the reconciler of purges.
var purgeKey = types.NamespacedName{Name: "purge"}

// later deletes soon what nobody waits for, of filters that a consumer had.
func (p *purges) later(all bool, filters ...string) {
	p.mu.Lock()
	for _, filter := range filters {
		p.filters[filter] = true
	}
	p.all = p.all || all
	p.mu.Unlock()
	p.add(purgeKey, purgeSoon)
}

// reconcile deletes what no consumer has to get. A failure holds up nothing: the next purge finds
// the same.
func (p *purges) reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := p.state()
	p.mu.Lock()
	filters, all := slices.Sorted(maps.Keys(p.filters)), p.all
	p.mu.Unlock()
	if now.backends.NATS == nil || now.created.IsZero() {
		return reconcile.Result{}, nil // a sweep comes with the stream
	}
	js, _, err := p.connection.JetStream()
	if err != nil {
		return reconcile.Result{}, nil // and with the connection
	}
	s, err := js.Stream(ctx, backend.Stream)
	if err != nil || !s.CachedInfo().Created.Equal(now.created) {
		return reconcile.Result{RequeueAfter: purgeAgain}, nil
	}
	purged, open, err := stream.Purge{Removed: filters, All: all, Allowed: p.lock.Check, Before: &p.before}.Do(ctx, s)
	keepsTaken, again := stream.KeepsTaken(s.CachedInfo().Config), purgeAgain
	switch {
	case keepsTaken && p.before.Tight:
		again = purgeTight
	case keepsTaken:
		again = purgeTaken
	}
	if len(purged) > 0 && (!keepsTaken || len(filters) > 0) {
		p.log.Info("deleted events that no Subscription waits for", zap.Strings("subjects", purged[:min(len(purged), 20)]), zap.Int("number", len(purged)))
	}
	if errors.Is(err, stream.ErrUnstable) {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	if err != nil {
		p.log.Warn("cannot delete each event that no Subscription waits for", zap.Error(err))
		return reconcile.Result{RequeueAfter: purgeAgain}, nil
	}
	p.mu.Lock()
	for _, filter := range filters {
		if !slices.Contains(open, filter) {
			delete(p.filters, filter)
		}
	}
	p.all = p.all && !all
	p.mu.Unlock()
	if len(open) > 0 || keepsTaken {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	p.before = stream.Look{} // it has all consumers in it
	return reconcile.Result{}, nil
}
