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
	// progress is how often NATS is told of events that are here for at least as long: well before stream.AckWait is over.
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
	// queue are the events that wait for a slot, and posted is the number of those that have one.
	queue  []waiting
	posted int
	// busy are all of them, and since when they are here.
	busy     map[*nats.Msg]time.Time
	progress *time.Timer
}

// start begins to consume. The caller holds the lock of d.
func (d *Deliveries) start(subscription types.NamespacedName, settings Settings, source Source) (*worker, error) {
	w := &worker{
		Options: &d.options, subscription: subscription, name: subscription.String(), settings: settings,
		posting: &d.posting, ending: make(chan struct{}),
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
		w.next()
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

// waiting is an event that came, and waits for a slot.
type waiting struct {
	message *nats.Msg
	settle  func()
}

// receive is called for one message after the other.
func (w *worker) receive(m *nats.Msg, settle func()) {
	w.begin(m) // NATS is told of an event that waits, too: it would send it again meanwhile
	w.mu.Lock()
	w.queue = append(w.queue, waiting{m, settle})
	w.mu.Unlock()
	w.next()
}

// next posts events that wait, as many as there are slots for. After the end, they go back to NATS.
func (w *worker) next() {
	for {
		w.mu.Lock()
		ended := w.ended()
		if len(w.queue) == 0 || !ended && w.posted >= w.settings.MaxInFlight {
			w.mu.Unlock()
			return
		}
		first := w.queue[0]
		w.queue = w.queue[1:]
		if !ended {
			w.posted++
			w.posting.Add(1)
		}
		w.mu.Unlock()
		if ended {
			w.giveBack(first.message, 0)
			w.done(first.message)
			first.settle()
			continue
		}
		w.inFlight.Inc()
		first.settle()
		go func() {
			defer w.posting.Done()
			w.deliver(first.message)
			w.done(first.message)
			w.inFlight.Dec()
			w.mu.Lock()
			w.posted--
			w.mu.Unlock()
			w.next()
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

// tellProgress tells NATS of the events that the sink still works on, or that wait for it. One timer for all of them costs less than one
// for each.
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
