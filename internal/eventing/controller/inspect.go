package controller

import (
	"context"
	"maps"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/connection"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fleet"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// inspectEvery is how often all consumers are read: NATS tells nobody of an edit. It costs one
// request to NATS, and one more for each 256 consumers.
const inspectEvery = 4 * time.Second

// inspector looks at all consumers, again and again.
type inspector struct{ *Controller }

// run lets consumers be repaired that somebody edited, paused or deleted, and counts what waits in
// each.
func (c inspector) run(ctx context.Context) error {
	ticker := time.NewTicker(inspectEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := c.look(ctx); err != nil {
				c.log.Debug("cannot read the consumers", zap.Error(err)) // what reads the stream says it
			}
			for _, key := range c.details.next(time.Now()) {
				c.subscriptions.add(key, 0)
			}
		}
	}
}

func (c inspector) look(ctx context.Context) error {
	c.mu.Lock()
	now, before := c.state, maps.Clone(c.made)
	c.mu.Unlock()
	if !now.serves(operatorv1alpha1.NATS) || !c.connection.Connected() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connection.Timeout)
	defer cancel()
	if counts, err := c.letters.Counts(ctx); err != nil {
		c.log.Debug("cannot count the dead letters", zap.Error(err))
	} else {
		c.dead.set(counts)
	}
	if len(before) == 0 {
		return nil
	}
	consumers, err := consumersOf(ctx, c.connection, now)
	if err != nil {
		return err
	}
	var waiting fleet.Waiting
	for key, m := range before {
		info := consumers[key]
		if info != nil {
			c.deliveries.Waiting(key, info.NumAckPending)
			known := c.fleet.Numbers(key, info.NumAckPending, info.AckFloor.Stream)
			waiting.Add(key, info)
			atOnce, age := c.details.add(key, found{
				unsent: info.NumPending, unanswered: info.NumAckPending, redelivered: info.NumRedelivered, deadLetters: c.dead.count(key),
				taken: info.AckFloor.Stream, numbers: known,
			}, time.Now())
			c.metrics.Waiting(key, info.NumPending+uint64(max(info.NumAckPending, 0)), int(known.Repeating), age)
			if atOnce {
				c.subscriptions.add(key, 0)
			}
		}
		if (info == nil || stream.ConsumerDiffers(info.Config, m.want)) && c.forget(key, m) {
			c.log.Info("a consumer was changed by somebody else", zap.Stringer("subscription", key))
			c.subscriptions.add(key, 0)
		}
	}
	c.fleet.TellWaiting(&waiting)
	for _, key := range c.fleet.Recovered() {
		c.subscriptions.add(key, 0)
	}
	return nil
}

// forget forgets what is known of a consumer, unless that is something newer.
func (c inspector) forget(key types.NamespacedName, m made) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, known := c.made[key]
	if !known || !is.is(m) {
		return false
	}
	delete(c.made, key)
	return true
}
