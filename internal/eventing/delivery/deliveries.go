package delivery

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/contract"
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
	Budget *Budget
	// Changed is called when Health of a Subscription says something else after a while.
	Changed func(subscription types.NamespacedName, after time.Duration)
	// Lost is called when events of a Subscription are not delivered any more, because NATS does
	// not know its consumer.
	Lost func(subscription types.NamespacedName)
}

// Keeper stores events that are given up: letters.Store.
type Keeper interface {
	// Put stores an event. id is the same each time for one event of one Subscription.
	Put(ctx context.Context, l *contract.Letter, of *nats.Msg, id string) error
}

// Settings are how the events of one Subscription are delivered.
type Settings struct {
	// UID is that of the Subscription, for its dead letters.
	UID types.UID
	// Sink is the URL as it is in the Subscription. It is checked at each delivery.
	Sink string
	// MaxInFlight is the number of events that are posted at the same time, at least 1.
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
	// posting has one for each event that is being posted, of workers that were stopped, too.
	posting sync.WaitGroup
}

// New returns Deliveries that deliver nothing yet.
func New(o Options) *Deliveries {
	return &Deliveries{options: o, workers: map[types.NamespacedName]*worker{}}
}

// Set lets the events of a Subscription be delivered from a consumer. It does nothing if they are,
// with these settings.
func (d *Deliveries) Set(subscription types.NamespacedName, settings Settings, source Source) error {
	if w := d.worker(subscription); w != nil && w.settings == settings {
		return nil
	}
	d.Stop(subscription)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return errors.New("deliveries have ended")
	}
	w, err := d.start(subscription, settings, source)
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
			case <-w.pull.closed:
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

// Waiting tells of the events of a Subscription that NATS has to deliver yet: those that it has not
// sent, and those that were sent and not taken.
func (d *Deliveries) Waiting(subscription types.NamespacedName, unsent uint64, unanswered int) {
	repeating := 0
	if w := d.worker(subscription); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.unanswered = unanswered; unanswered == 0 {
			clear(w.traces)
		}
		for _, t := range w.traces {
			if !t.refused.IsZero() {
				repeating++
			}
		}
	}
	d.options.Metrics.Waiting(subscription, unsent+uint64(max(unanswered, 0)), repeating)
}

// Health is what came of the last deliveries of a Subscription.
type Health struct {
	// Known is false if there was none.
	Known bool
	// Problem says why the sink does not take events; "" if it does. It does not change with each
	// event.
	Problem string
	// Since is when the sink began not to take events, and Next when it is asked again; zero if
	// that is not known.
	Since, Next time.Time
	// Blocking is the event that keeps later ones from being sent, with MaxInFlight 1.
	Blocking Blocking
	// Letter is when an event became a dead letter, to a minute; zero if none did.
	Letter time.Time
	// Again, if not 0, is when to ask again: the sink takes events, but it refused some a moment
	// ago.
	Again time.Duration
}

// Blocking is an event that the sink refuses, and since when. Without an ID there is none.
type Blocking struct {
	ID    string
	Since time.Time
}

// Health is that of a Subscription.
func (d *Deliveries) Health(subscription types.NamespacedName) Health {
	w := d.worker(subscription)
	if w == nil {
		return Health{}
	}
	now := time.Now()
	is := w.health.at(now)
	if is.Problem != "" {
		w.mu.Lock()
		is.Next = w.reach.next(w.traces.next(), len(w.busy) > 0, now)
		w.mu.Unlock()
	}
	return is
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
