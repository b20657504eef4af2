package standin

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// loop is what a controller with one worker consists of: the kinds it watches, and a queue.
type loop struct {
	queue   workqueue.TypedRateLimitingInterface[string]
	log     func(format string, args ...any)
	retries int // how often a key is tried again; 0: for ever

	changes

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
		log: log,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, backoff)),
	}
	l.ctx, l.stop = context.WithCancel(ctx)
	context.AfterFunc(l.ctx, l.queue.ShutDown)
	return l
}

// watch calls see with the key of every object that changes, and returns when all that exist are
// known.
func (l *loop) watch(s *store, see func(key string)) error {
	if err := s.watch(func(key string) { see(key); l.tell(nil) }); err != nil {
		return err
	}
	return observe(l.ctx, &l.running, s)
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
