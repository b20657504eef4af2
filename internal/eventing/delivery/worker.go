package delivery

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// progress is how often NATS is told of events that sinks work on for at least as long: well before stream.AckWait is over.
	progress = 10 * time.Second
	// mostPulled bounds the events that wait in this process for a slot, and so its memory.
	mostPulled = 50
	// ackLimit is how long NATS is told again and again that an event was taken: a server that restarts forgets no event, and what
	// it hears late is one duplicate less. ackTimeout is how long one answer may take, ackPause the pause after it.
	ackLimit   = 30 * time.Second
	ackTimeout = 5 * time.Second
	ackPause   = 500 * time.Millisecond

	// Extensions of a dead letter, the same as Knative's on the other backend.
	deadLetterDest = "Ce-Knativeerrordest"
	deadLetterCode = "Ce-Knativeerrorcode"
)

// worker delivers the events of one Subscription.
type worker struct {
	*Options

	subscription types.NamespacedName
	name         string // of the Subscription, in metrics and the log
	settings     Settings
	pull         *pull
	slots        chan struct{} // one for each event that may be posted
	posting      *sync.WaitGroup
	ending       chan struct{}
	inFlight     prometheus.Gauge
	backlog      prometheus.Gauge
	duration     prometheus.Observer
	end          sync.Once
	health       health
	// sink is where events go, unless refused says why the Subscription may not have it.
	sink    Sink
	refused error

	mu sync.Mutex
	// busy are the events that the sink has, and since when.
	busy     map[*nats.Msg]time.Time
	progress *time.Timer
}

// start begins to consume. The caller holds the lock of d.
func (d *Deliveries) start(subscription types.NamespacedName, settings Settings, source Source) (*worker, error) {
	w := &worker{
		Options: &d.options, subscription: subscription, name: subscription.String(), settings: settings,
		slots: make(chan struct{}, settings.MaxInFlight), posting: &d.posting, ending: make(chan struct{}),
		inFlight: d.options.Metrics.inFlight.WithLabelValues(subscription.String()),
		backlog:  d.options.Metrics.backlog.WithLabelValues(subscription.String()),
		duration: d.options.Metrics.duration.WithLabelValues(subscription.String()),
	}
	w.sink, w.refused = ParseSink(subscription.Namespace, settings.Sink)
	w.busy = map[*nats.Msg]time.Time{}
	var err error
	w.pull, err = startPull(source, min(settings.MaxInFlight, mostPulled), w.receive, func(reason string) {
		w.Log.Debug("no more events come", zap.String("subscription", w.name), zap.String("reason", reason))
		go d.lost(w)
	})
	if err == nil {
		w.mu.Lock()
		w.progress = time.AfterFunc(progress, w.tellProgress)
		w.mu.Unlock()
	}
	return w, err
}

// stop lets nothing more be posted. What was received and not posted goes back to NATS.
func (w *worker) stop() {
	w.end.Do(func() {
		close(w.ending)
		w.pull.stop()
	})
}

func (w *worker) ended() bool {
	select {
	case <-w.ending:
		return true
	default:
		return false
	}
}

// receive is called for one message after the other. It waits for a slot, so that NATS is asked for no more than can be posted.
func (w *worker) receive(m *nats.Msg) {
	if w.ended() {
		w.giveBack(m, 0)
		return
	}
	select {
	case <-w.ending:
		w.giveBack(m, 0)
	case w.slots <- struct{}{}:
		w.posting.Add(1)
		w.inFlight.Inc()
		go func() {
			w.deliver(m)
			w.inFlight.Dec()
			<-w.slots
			w.posting.Done()
		}()
	}
}

// deliver posts one event, and tells NATS what came of it. It is not ended by the end of this process, which waits for it.
func (w *worker) deliver(m *nats.Msg) {
	about, err := m.Metadata()
	if err != nil {
		w.Log.Error("a message has not come from JetStream", zap.String("subscription", w.name), zap.Error(err))
		return
	}
	header, err := eventHeader(m.Header)
	if err != nil {
		w.Metrics.total.WithLabelValues(w.name, "invalid").Inc()
		w.Log.Warn("deleted a message that is no event: it would never be delivered", zap.String("subscription", w.name),
			zap.Uint64("sequence", about.Sequence.Stream), zap.Error(err))
		if err := m.Term(); err != nil {
			w.Log.Warn("cannot delete a message that is no event: NATS sends it again", zap.String("subscription", w.name), zap.Error(err))
		}
		return
	}
	w.begin(m)
	defer w.done(m)
	o := w.post(header, m.Data)
	w.backlog.Set(float64(about.NumPending))
	if after := w.health.note(o.problem, time.Now()); after > 0 {
		w.Changed(w.subscription, after)
	}
	if o.taken() || w.deadLetter(about, header, m.Data, o) {
		w.acknowledge(m)
		return
	}
	w.giveBack(m, retryDelay(about.NumDelivered, o.after, rand.Float64()))
}

// post sends an event to the sink, if that is one that the Subscription may have.
func (w *worker) post(header http.Header, data []byte) outcome {
	if w.refused != nil {
		return outcome{code: "refused", problem: w.refused.Error()}
	}
	began := time.Now()
	o := w.Sender.send(context.Background(), sinkTimeout, w.sink.url, header, data)
	w.Metrics.total.WithLabelValues(w.name, o.code).Inc()
	w.duration.Observe(time.Since(began).Seconds())
	return o
}

// deadLetter sends an event that was refused for too long to where such events go. It tells whether it was taken there.
func (w *worker) deadLetter(about *nats.MsgMetadata, header http.Header, data []byte, o outcome) bool {
	if w.DeadLetterSink == nil || time.Since(about.Timestamp) < w.DeadLetterAfter {
		return false
	}
	header = maps.Clone(header)
	header[deadLetterDest], header[deadLetterCode] = []string{w.settings.Sink}, []string{o.code}
	letter := w.Sender.send(context.Background(), sinkTimeout, w.DeadLetterSink, header, data)
	if !letter.taken() {
		w.Log.Warn("the dead letter sink takes no events", zap.String("subscription", w.name), zap.String("problem", letter.problem))
		return false
	}
	w.Metrics.total.WithLabelValues(w.name, "dead-letter").Inc()
	return true
}

func (w *worker) begin(m *nats.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[m] = time.Now()
}

func (w *worker) done(m *nats.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, m)
}

// tellProgress tells NATS of the events that the sink still works on. One timer for all of them costs less than one for each.
func (w *worker) tellProgress() {
	var slow []*nats.Msg
	w.mu.Lock()
	for m, since := range w.busy {
		if time.Since(since) >= progress {
			slow = append(slow, m)
		}
	}
	if len(w.busy) > 0 || !w.ended() {
		w.progress.Reset(progress)
	}
	w.mu.Unlock()
	for _, m := range slow {
		_ = m.InProgress() // without it the event is sent again, which is what would happen anyway
	}
}

// acknowledge tells NATS that an event was taken, and waits until NATS has stored that.
func (w *worker) acknowledge(m *nats.Msg) {
	var err error
	for deadline := time.Now().Add(ackLimit); time.Now().Before(deadline); time.Sleep(ackPause) {
		ctx, cancel := context.WithTimeout(context.Background(), ackTimeout)
		err = m.AckSync(nats.Context(ctx))
		cancel()
		if err == nil || errors.Is(err, nats.ErrConnectionClosed) || w.ended() && errors.Is(err, nats.ErrNoResponders) {
			break
		}
	}
	if err != nil {
		w.Log.Warn("the sink took an event, but NATS did not store that: the event is sent again", zap.String("subscription", w.name), zap.Error(err))
	}
}

// giveBack tells NATS to send an event again after a delay.
func (w *worker) giveBack(m *nats.Msg, delay time.Duration) {
	if err := m.NakWithDelay(delay); err != nil {
		w.Log.Debug("an event cannot be given back: NATS sends it again by itself", zap.String("subscription", w.name), zap.Error(err))
	}
}
