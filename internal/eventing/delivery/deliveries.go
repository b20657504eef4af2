package delivery

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/budget"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/pull"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/tally"
)

// Options are what all Subscriptions share. All but the dead letter sink, the dead letters, the
// watches and the budget are required.
type Options struct {
	Sender  *Sender
	Metrics *tally.Metrics
	Log     *zap.Logger
	// DeadLetterAfter is how long after it was published an event is given up that its sink
	// refuses. It goes to DeadLetterSink, and where there is none, or it takes no events, it is
	// stored in DeadLetters. With neither, an event is retried until its sink takes it.
	DeadLetterAfter time.Duration
	DeadLetterSink  *url.URL
	DeadLetters     Keeper
	// Watches are told of each delivery; nil if nobody watches.
	Watches *Watches
	// Budget bounds the bytes of all Subscriptions together. nil is no bound.
	Budget *budget.Budget
	// Live tells whether this process may post. While it may not, events wait. nil is always.
	Live func() bool
	// Changed is called when Health of a Subscription says something else after a while.
	Changed func(subscription types.NamespacedName, after time.Duration)
	// Lost is called when events of a Subscription are not delivered any more, because NATS does
	// not know its consumer.
	Lost func(subscription types.NamespacedName)
	// firstRetry is how long an event waits that was refused once. 0 is the constant.
	firstRetry time.Duration
	// requeueBehind is how far an event may be behind those that its sink has taken. 0 is the
	// constant.
	requeueBehind uint64
}

// Keeper stores events that are given up: letters.Store.
type Keeper interface {
	// Put stores an event. id is the same each time for one event of one Subscription.
	Put(ctx context.Context, l *wire.Letter, of *nats.Msg, id string) error
}

// Settings are how the events of one Subscription are delivered.
type Settings struct {
	// UID is that of the Subscription, for its dead letters, and Generation that of its spec.
	UID        types.UID
	Generation int64
	// Sink is the URL as it is in the Subscription. It is checked at each delivery.
	Sink string
	// MaxInFlight is the number of events that are posted at the same time, at least 1, by all
	// processes together.
	MaxInFlight int
	// Types is the number of types of the Subscription. 0 is one.
	Types int
	// DeadLetterSink is the URL as it is in the Subscription, for its dead letters instead of the
	// one of Options; "" if it has none.
	DeadLetterSink string
}

// Deliveries are those of all Subscriptions in this process. Its methods can be called at the same
// time.
type Deliveries struct {
	options Options

	mu      sync.Mutex
	workers map[types.NamespacedName]*worker
	stopped bool
	// share is the part of MaxInFlight that this process has.
	share Share
	// posting has one for each event that is being posted, of workers that were stopped, too.
	posting sync.WaitGroup
	// pace is that of the requests of all workers.
	pace *pull.Pace
}

// Share returns how many of the events of a Subscription that may be posted at the same time this
// process may post.
type Share func(subscription types.NamespacedName, all int) int

// New returns Deliveries that deliver nothing yet.
func New(o Options) *Deliveries {
	if o.Live == nil {
		o.Live = func() bool { return true }
	}
	return &Deliveries{options: o, pace: pull.NewPace(), workers: map[types.NamespacedName]*worker{}, share: func(_ types.NamespacedName, all int) int { return all }}
}

// Divide lets this process have another part of what all processes may post.
func (d *Deliveries) Divide(share Share) {
	d.mu.Lock()
	d.share = share
	workers := maps.Clone(d.workers)
	d.mu.Unlock()
	for subscription, w := range workers {
		resize(w, share(subscription, w.settings.MaxInFlight))
	}
}

// resize lets so many events be posted at the same time. Those that are being posted are finished.
func resize(w *worker, slots int) {
	w.mu.Lock()
	changes := w.lanes.slots != slots
	w.lanes.slots = slots
	w.mu.Unlock()
	if changes {
		w.pull.Resize(min(slots, mostPulled))
		w.next()
	}
}

// keeps tells whether the worker can go on with settings, and lets it: it has all but the
// generation.
func keeps(w *worker, settings Settings) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	is := w.settings
	is.Generation = settings.Generation
	if is != settings {
		return is.UID == settings.UID && settings.Generation < w.generation // an earlier spec, read too late
	}
	w.generation = max(w.generation, settings.Generation)
	return true
}

// Hold lets nothing more be posted until Set is called for a Subscription again: what is known of
// it may be old. What was received and not posted goes back to NATS.
func (d *Deliveries) Hold() {
	d.mu.Lock()
	workers := maps.Clone(d.workers)
	d.mu.Unlock()
	for _, w := range workers {
		w.hold(true)
	}
}

// Outdated ends the delivery of the events of a Subscription by an earlier spec than one with a
// generation, or of another Subscription of the same name. It tells whether there was one.
func (d *Deliveries) Outdated(subscription types.NamespacedName, uid types.UID, generation int64) bool {
	w := d.worker(subscription)
	if w == nil {
		return false
	}
	w.mu.Lock()
	fits := w.settings.UID == uid && w.generation >= generation
	w.mu.Unlock()
	if fits {
		return false
	}
	d.Stop(subscription)
	return true
}

// Set lets the events of a Subscription be delivered from a consumer. It does nothing if they are,
// with these settings.
func (d *Deliveries) Set(subscription types.NamespacedName, settings Settings, source pull.Source) error {
	if w := d.worker(subscription); w != nil && keeps(w, settings) {
		w.hold(false)
		return nil
	}
	d.Stop(subscription)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return errors.New("deliveries have ended")
	}
	w, err := d.start(subscription, settings, source, d.share(subscription, settings.MaxInFlight))
	if err == nil {
		d.workers[subscription] = w
	}
	return err
}

// Stop ends the delivery of the events of a Subscription. Those that are being posted are finished;
// the others go back to NATS.
func (d *Deliveries) Stop(subscription types.NamespacedName) {
	d.mu.Lock()
	w := d.workers[subscription]
	delete(d.workers, subscription)
	d.mu.Unlock()
	if w != nil {
		w.stop()
	}
}

// Subscriptions are those whose events are delivered.
func (d *Deliveries) Subscriptions() []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.workers))
}

// Forget is Stop for a Subscription that is gone, and removes its metrics.
func (d *Deliveries) Forget(subscription types.NamespacedName) {
	d.Stop(subscription)
	d.options.Metrics.Forget(subscription)
}

// StopAll ends all deliveries permanently, and returns when NATS has what was not posted, and the
// sinks have answered.
func (d *Deliveries) StopAll(ctx context.Context) error {
	d.mu.Lock()
	d.stopped = true
	workers := d.workers
	d.workers = map[types.NamespacedName]*worker{}
	d.mu.Unlock()
	for _, w := range workers {
		w.stop()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, w := range workers {
			select {
			case <-w.pull.Closed():
			case <-ctx.Done(): // NATS cannot be reached, and sends the events again by itself
			}
		}
		d.posting.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Waiting tells how many events of a Subscription NATS has sent, to all processes, that were not
// taken.
func (d *Deliveries) Waiting(subscription types.NamespacedName, unanswered int) {
	if w := d.worker(subscription); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.unanswered = unanswered; unanswered == 0 {
			clear(w.traces)
		}
	}
}

func (d *Deliveries) worker(subscription types.NamespacedName) *worker {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.workers[subscription]
}

// lost removes a worker that ended by itself.
func (d *Deliveries) lost(w *worker) {
	d.mu.Lock()
	ours := d.workers[w.subscription] == w
	if ours {
		delete(d.workers, w.subscription)
	}
	d.mu.Unlock()
	if ours {
		w.stop()
		d.options.Lost(w.subscription)
	}
}
