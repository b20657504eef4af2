package standin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// loop is what a controller with one worker consists of: the kinds it watches, and a queue.
type loop struct {
	queue   workqueue.TypedRateLimitingInterface[string]
	log     func(format string, args ...any)
	retries int // how often a key is tried again; 0: for ever

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when anything changes

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

// newLoop makes one that retries after 5 ms, and then after twice as long each time, up to backoff.
func newLoop(ctx context.Context, log func(format string, args ...any), backoff time.Duration) *loop {
	if log == nil {
		log = func(string, ...any) {}
	}
	l := &loop{
		log: log, changed: make(chan struct{}),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, backoff)),
	}
	l.ctx, l.stop = context.WithCancel(ctx)
	context.AfterFunc(l.ctx, l.queue.ShutDown)
	return l
}

// watch calls see with the key of every object that changes, and returns when all that exist are known.
func (l *loop) watch(s *store, see func(key string)) error {
	if err := s.watch(func(key string) { see(key); l.tell() }); err != nil {
		return err
	}
	l.running.Go(func() { s.informer.RunWithContext(l.ctx) })
	if !cache.WaitForCacheSync(l.ctx.Done(), s.informer.HasSynced) {
		return fmt.Errorf("cannot list %s: %w", s.gvk.Kind, context.Cause(l.ctx))
	}
	return nil
}

// run works the queue off.
func (l *loop) run(reconcile func(ctx context.Context, key string) error) {
	l.running.Go(func() {
		for {
			key, shutdown := l.queue.Get()
			if shutdown {
				return
			}
			err := reconcile(l.ctx, key)
			switch {
			case err == nil || l.retries > 0 && l.queue.NumRequeues(key) >= l.retries:
				l.queue.Forget(key)
			case l.ctx.Err() == nil:
				l.log("%s: %v", key, err)
				l.queue.AddRateLimited(key)
			}
			l.queue.Done(key)
		}
	})
}

// end ends it, and returns when it has ended.
func (l *loop) end() {
	l.stop()
	l.queue.ShutDown()
	l.running.Wait()
}

// tell the waiting callers that something has changed.
func (l *loop) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// await asks again whenever something has changed, until it holds.
func (l *loop) await(ctx context.Context, holds func() bool) error {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if holds() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
