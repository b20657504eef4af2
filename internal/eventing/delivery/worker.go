package delivery

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/budget"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/pull"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/refusal"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/retry"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/tally"
)

const (
	// mostPulled bounds the events that wait in this process for a slot, and so its memory.
	mostPulled = 50
	// ackLimit is how long NATS is told again and again that an event was taken: a server that
	// restarts forgets no event, and what it hears late is one duplicate less. ackTimeout is how
	// long one answer may take, ackPause the pause after it.
	ackLimit   = 30 * time.Second
	ackTimeout = 5 * time.Second
	ackPause   = 500 * time.Millisecond

	// tick is how often events that wait for a slot are looked at, and how often NATS is told of
	// those that it has to send again. NATS looks for those that are due 10 ms after it was told of
	// one: told all the time, it would never look.
	tick = 250 * time.Millisecond

	// aheadLimit is how long an event may wait for a slot until no more are pulled before all that
	// are here have one: they would wait longer, and NATS would have to be told of them meanwhile.
	aheadLimit = time.Second

	// heldDelay is after which time NATS sends an event again that came to a process that may post
	// nothing for now: to another one, with luck.
	heldDelay = time.Second

	// askAgain is for how long a consumer that gets no events that are stored again is not asked
	// for it: one of a single server, where each event that is refused would ask.
	askAgain = time.Minute
)

// worker delivers the events of one Subscription.
type worker struct {
	*Options

	subscription types.NamespacedName
	name         string // of the Subscription, in metrics and the log
	settings     Settings
	source       pull.Source
	pull         *pull.Pull
	bytes        *budget.Share // of events
	posts        *budget.Share // what it takes to post them, in addition
	posting      *sync.WaitGroup
	pace         *pull.Pace
	ending       chan struct{}
	metrics      *tally.Series
	end          sync.Once
	health       health.Tracker
	refusals     refusal.Log
	// sink is where events go, unless refused says why the Subscription may not have it.
	sink    Sink
	refused error
	// letterSink gets events that are given up; nil if they are only stored.
	letterSink *url.URL

	mu sync.Mutex
	// held says that nothing is posted until the settings are known to be those of now. generation
	// is that of the spec that they were read from last.
	held       bool
	generation int64
	// queue are the events that wait for a slot. lanes have those that are being posted.
	queue []waiting
	lanes *lanes
	reach reach
	// free lets others be pulled, as many as there are places: those of events that have a slot.
	free   func(n int)
	places int
	// busy are all of them, and progress tells NATS of them while there are any.
	busy     present
	progress *time.Timer
	// repeats are events that NATS has to be told of, and ticks tells it.
	repeats []repeat
	ticks   *time.Timer
	ticking bool
	// newest is the last event, by its sequence, that the sink has taken here.
	newest uint64
	// notKept is when NATS last said that taken events are not kept because of those that wait.
	notKept time.Time
	// traces are of events that wait in NATS for their next try, by sequence; unanswered is what
	// NATS says how many they are.
	traces     traces
	unanswered int
}

// repeat is an event that NATS has to send again at a time.
type repeat struct {
	message *nats.Msg
	at      time.Time
}

// trace is what is known of an event that was not taken yet.
type trace struct {
	// aside is how often it was not sent, and refused since when the sink has refused it; zero if
	// it has not.
	aside   uint64
	refused time.Time
	// published is when it was, and next when it comes again, both in nanoseconds since 1970: there
	// may be 50,000.
	published, next int64
}

// tries is how often the event was sent.
func (t trace) tries(about *nats.MsgMetadata) uint64 {
	return about.NumDelivered - min(t.aside, about.NumDelivered)
}

// start begins to consume. The caller holds the lock of d.
func (d *Deliveries) start(subscription types.NamespacedName, settings Settings, source pull.Source, slots int) (*worker, error) {
	w := &worker{
		Options: &d.options, subscription: subscription, name: subscription.String(), settings: settings,
		generation: settings.Generation,
		posting:    &d.posting, pace: d.pace, ending: make(chan struct{}), source: source,
		metrics: d.options.Metrics.Series(subscription, source.Consumer, settings.Sink),
		bytes:   budget.NewShare(d.options.Budget, nil),
		posts:   budget.NewShare(d.options.Budget, nil),
		lanes:   newLanes(slots, settings.Types), traces: map[uint64]trace{},
	}
	w.posts.Room(w.next)
	w.ticks = time.AfterFunc(tick, w.tick)
	w.ticks.Stop()
	w.sink, w.refused = ParseSink(subscription.Namespace, settings.Sink)
	w.letterSink = d.options.letterSinkOf(subscription.Namespace, settings)
	w.busy = present{}
	w.progress = time.AfterFunc(tick, w.tellProgress)
	w.progress.Stop()
	var err error
	w.pull, err = pull.Start(source, min(slots, mostPulled), d.pace, w.bytes, w.receive, func(reason string) {
		w.Log.Debug("no more events come", zap.String("subscription", w.name), zap.String("reason", reason))
		go d.lost(w)
	})
	return w, err
}

// stop lets nothing more be posted. What was received and not posted goes back to NATS.
func (w *worker) stop() {
	w.end.Do(func() {
		close(w.ending)
		w.pull.Stop()
		w.next()
		w.tick()
		w.posts.End()
	})
}

// hold lets nothing be posted, or ends that.
func (w *worker) hold(is bool) {
	w.mu.Lock()
	changes := w.held != is
	w.held = is
	w.mu.Unlock()
	if changes {
		w.next()
	}
}

func (w *worker) ended() bool {
	select {
	case <-w.ending:
		return true
	default:
		return false
	}
}

// waiting is an event that came, and waits for a slot or for the sink.
type waiting struct {
	message *nats.Msg
	about   *nats.MsgMetadata
	since   time.Time
	// again: it was stored again, and may be of a type that the Subscription has no more.
	again bool
	// tell is when NATS is told next that it is here.
	tell time.Time
}

// present are events that wait for a slot, or for the sink, by their sequence in the stream.
type present map[uint64]waiting

// add tells whether an event came that was not here. The same one comes when NATS has not heard in
// time that it is being delivered, or was taken. What NATS is told of the first one is of both.
func (p present) add(e waiting) bool {
	former, is := p[e.about.Sequence.Stream]
	if is && former.about.Timestamp.Equal(e.about.Timestamp) { // else it is of an earlier stream
		return false
	}
	p[e.about.Sequence.Stream] = e
	return true
}

func (p present) remove(e waiting) {
	if p[e.about.Sequence.Stream].message == e.message {
		delete(p, e.about.Sequence.Stream)
	}
}

// receive is called for one message after the other.
func (w *worker) receive(m *nats.Msg, free func(n int)) {
	about, err := m.Metadata()
	if err != nil {
		w.Log.Error("a message has not come from JetStream", zap.String("subscription", w.name), zap.Error(err))
	}
	w.mu.Lock()
	again := false
	if err == nil {
		var refused time.Time
		if refused, again = retry.Restore(m, about); again && w.traces[about.Sequence.Stream].refused.IsZero() {
			w.traces[about.Sequence.Stream] = trace{refused: refused, published: about.Timestamp.UnixNano()}
		}
	}
	now := time.Now()
	e := waiting{m, about, now, again, now.Add(backend.ProgressAfter)}
	added := err == nil && w.busy.add(e) // NATS is told of an event that waits, too: it would send it again meanwhile
	if added {
		w.queue = append(w.queue, e)
	}
	if added && len(w.busy) == 1 {
		w.progress.Reset(backend.ProgressAfter)
	}
	w.free = free
	w.mu.Unlock()
	if !added {
		w.bytes.Give(pull.Size(m))
		free(1)
	}
	w.next()
}

// next posts the events that have a slot now, and lets those make way that have waited for too
// long.
func (w *worker) next() {
	var leave []waiting
	w.mu.Lock()
	now, ended := time.Now(), w.ended()
	left, short, live := w.queue[:0], false, len(w.queue) > 0 && w.Live()
	for _, e := range w.queue {
		v := waits
		switch {
		case ended, w.held, w.lanes.slots == 0:
			leave = append(leave, e)
			w.places++
			continue
		case !live:
		case !short && (w.reach.may(w.lanes.used, now) || w.overdue(e.about, now)):
			v, short = w.slot(e, now)
		}
		switch v {
		case posts:
			w.posting.Add(1)
			go w.run(e)
		case steps:
			w.busy.remove(e)
			w.stepAside(e, now)
		default:
			left = append(left, e)
			continue
		}
		w.places++
	}
	clear(w.queue[len(left):])
	w.queue = left
	free, places, delay := w.free, 0, time.Duration(0)
	switch {
	case w.held && !ended: // no more are pulled: all that is stored would come here, and go back
		delay = heldDelay // it would come back at once
	case len(left) == 0 || now.Sub(left[0].since) <= aheadLimit:
		places, w.places = w.places, 0
	}
	w.await()
	w.mu.Unlock()
	for _, e := range leave {
		w.giveBack(e.message, delay)
		w.mu.Lock()
		w.busy.remove(e)
		w.mu.Unlock()
		w.bytes.Give(pull.Size(e.message))
	}
	if places > 0 {
		free(places)
	}
}

// slot gives an event a slot if it may have one, and there are bytes for it; if there are none, it
// is short. The caller holds the lock.
func (w *worker) slot(e waiting, now time.Time) (v verdict, short bool) {
	if w.lanes.used < w.lanes.slots && !w.posts.TakePost(0) {
		return waits, true // posts say when there are bytes
	}
	full := w.lanes.used == w.lanes.slots
	v = w.lanes.take(e.message, e.since, now)
	if v != posts && !full {
		w.posts.GivePost(0)
	}
	return v, false
}

// run delivers an event that has a slot.
func (w *worker) run(e waiting) {
	defer w.posting.Done()
	w.metrics.InFlight.Inc()
	again := false
	if w.Live() { // this process may have been stopped since it took the slot
		again = w.deliver(e)
	} else {
		w.giveBack(e.message, heldDelay)
	}
	w.metrics.InFlight.Dec()
	w.posts.GivePost(0)
	if !again {
		w.bytes.Give(pull.Size(e.message))
	}
	w.mu.Lock()
	w.busy.remove(e)
	w.lanes.release(e.message, time.Now())
	w.mu.Unlock()
	w.next()
}

// stepAside lets NATS send an event later that was not sent to the sink. The caller holds the lock.
func (w *worker) stepAside(e waiting, now time.Time) {
	at := now.Add(retry.Aside(w.waiting(), rand.Float64()))
	t := w.traces[e.about.Sequence.Stream]
	t.aside++
	t.published, t.next = e.about.Timestamp.UnixNano(), at.UnixNano()
	w.traces[e.about.Sequence.Stream] = t
	w.repeats = append(w.repeats, repeat{e.message, at})
}

// again lets NATS send an event later that the sink has refused.
func (w *worker) again(m *nats.Msg, about *nats.MsgMetadata, id string, o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	t := w.traces[about.Sequence.Stream]
	if t.refused.IsZero() {
		t.refused = now
	}
	at := now.Add((retry.Refusal{Code: o.code, Asked: o.after}).Delay(cmp.Or(w.firstRetry, retry.First), t.tries(about), w.waiting(), rand.Float64()))
	t.published, t.next = about.Timestamp.UnixNano(), at.UnixNano()
	w.traces[about.Sequence.Stream] = t
	if w.settings.MaxInFlight == 1 {
		w.health.Block(id, t.refused, now)
	}
	w.repeats = append(w.repeats, repeat{m, at})
	w.await()
}

// waiting is how many events wait in NATS for their next try. The caller holds the lock.
func (w *worker) waiting() int { return max(len(w.traces), w.unanswered) }

// finish forgets an event that does not come again.
func (w *worker) finish(about *nats.MsgMetadata) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.traces, about.Sequence.Stream)
	w.health.Unblock()
}

// await lets tick be called if there is something for it. The caller holds the lock.
func (w *worker) await() {
	switch {
	case len(w.queue) == 0 && len(w.repeats) == 0:
	case w.ended():
		w.ticks.Reset(0)
	case !w.ticking:
		w.ticking = true
		w.ticks.Reset(tick)
	}
}

// tick tells NATS of events that it has to send again, and looks at those that wait.
func (w *worker) tick() {
	w.mu.Lock()
	w.ticking = false
	all := w.repeats
	w.repeats = nil
	w.mu.Unlock()
	for _, r := range all {
		w.giveBack(r.message, max(time.Until(r.at), 0))
		w.bytes.Give(pull.Size(r.message))
	}
	w.next()
}

// overdue tells whether an event is given up if it is refused. A sink that cannot be reached must
// not hold it up.
func (w *worker) overdue(about *nats.MsgMetadata, now time.Time) bool {
	return (w.letterSink != nil || w.DeadLetters != nil) && now.Sub(about.Timestamp) >= w.DeadLetterAfter
}

// deliver posts one event, and tells NATS what came of it. It is not ended by the end of this
// process, which waits for it. It tells whether NATS is told later.
func (w *worker) deliver(e waiting) (later bool) {
	m, about := e.message, e.about
	if e.again && retry.Unasked(w.source, m.Subject) {
		w.acknowledge(m)
		w.finish(about)
		return false
	}
	header, err := eventHeader(m.Header)
	if err != nil {
		return w.invalid(m, about, err)
	}
	posted := time.Now()
	o := w.post(header, m.Data)
	if after := w.health.Note(o.problem, time.Now()); after > 0 {
		w.Changed(w.subscription, after)
	}
	w.mu.Lock()
	w.reach.note(o, time.Now())
	w.lanes.answered(m, time.Now())
	t := w.traces[about.Sequence.Stream]
	if o.taken() {
		w.newest = max(w.newest, about.Sequence.Stream)
	}
	w.mu.Unlock()
	w.Watches.tell(w.subscription, w.settings.Sink, header, about.Timestamp, e.since, posted, about.NumDelivered, o)
	given := !o.taken() && w.overdue(about, time.Now()) && w.giveUp(m, about, header, o)
	if o.taken() {
		w.metrics.Taken(header, about.Timestamp)
	} else {
		next := "which is sent again"
		if given {
			next = "which is a dead letter now"
		}
		w.refusals.Say(w.Log, "a sink did not take an event, "+next, refused(w.subscription, header, o), zap.Uint64("try", t.tries(about)))
	}
	if o.taken() || given || w.requeue(m, about, header, o) {
		w.acknowledge(m)
		w.finish(about)
		return false
	}
	w.again(m, about, header.Get("Ce-Id"), o)
	return true
}

// requeue stores an event again that the sink has refused while it took much that came later, and
// tells whether the first one can be acknowledged. If the stream takes nothing, the event becomes a
// dead letter: it holds up the space of others, and would do so until it is given up.
func (w *worker) requeue(m *nats.Msg, about *nats.MsgMetadata, header http.Header, o outcome) bool {
	w.mu.Lock()
	t, behind := w.traces[about.Sequence.Stream], w.newest > about.Sequence.Stream+cmp.Or(w.requeueBehind, retry.Behind)
	asked := time.Since(w.notKept) < askAgain
	w.mu.Unlock()
	if !behind || asked || w.settings.MaxInFlight == 1 { // in order, nothing came later
		return false
	}
	if t.refused.IsZero() {
		t.refused = time.Now()
	}
	err := retry.Put(w.source, m, about, t.refused, t.tries(about))
	var no *jetstream.APIError
	switch {
	case err == nil:
		return true
	case errors.Is(err, retry.ErrNotKept):
		w.mu.Lock()
		w.notKept = time.Now()
		w.mu.Unlock()
		return false
	case errors.As(err, &no) && w.giveUp(m, about, header, o):
		w.Log.Warn("an event that its sink refuses held up the space of later ones, and the stream is full: it is a dead letter now",
			zap.String("subscription", w.name), zap.Uint64("sequence", about.Sequence.Stream), zap.Error(err))
		return true
	}
	w.Log.Debug("an event is not stored again", zap.String("subscription", w.name), zap.Error(err))
	return false
}

// post sends an event to the sink, if that is one that the Subscription may have.
func (w *worker) post(header http.Header, data []byte) outcome {
	if w.refused != nil {
		return outcome{code: "refused", problem: w.refused.Error(), unreachable: true}
	}
	began := time.Now()
	o := w.Sender.send(context.Background(), backend.SinkTimeout, w.sink.url, header, data)
	w.metrics.Posted(header, o.code, time.Since(began))
	return o
}

// tellProgress tells NATS of the events that the sink still works on, or that wait for it. One
// timer for all of them costs less than one for each.
func (w *worker) tellProgress() {
	var slow []*nats.Msg
	w.mu.Lock()
	now, next := time.Now(), time.Time{}
	for sequence, e := range w.busy {
		if !now.Before(e.tell) {
			slow = append(slow, e.message)
			e.tell = now.Add(backend.ProgressEvery)
			w.busy[sequence] = e
		}
		if next.IsZero() || e.tell.Before(next) {
			next = e.tell
		}
	}
	if len(w.busy) > 0 {
		w.progress.Reset(max(next.Sub(now), tick))
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
		sent := w.pace.Acknowledge()
		err = m.AckSync(nats.Context(ctx))
		sent.Answered()
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
