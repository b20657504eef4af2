package delivery

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/pull"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
)

const (
	// Extensions of a dead letter at a sink, the same as Knative's on the other backend.
	deadLetterDest = "Ce-Knativeerrordest"
	deadLetterCode = "Ce-Knativeerrorcode"
	// redelivered is the extension of an event that was a dead letter and is delivered again.
	redelivered = "Ce-Redelivered"
	// roomEvery is how often a redelivery asks for room to post.
	roomEvery = 50 * time.Millisecond
)

// giveUp brings an event that its sink has refused for too long to the dead letter sink, if there
// is one that takes the event, and else to the stream of dead letters. It tells whether it is
// there.
func (w *worker) giveUp(m *nats.Msg, about *nats.MsgMetadata, header http.Header, o outcome) bool {
	if w.letterSink != nil && w.postLetter(context.Background(), backend.SinkTimeout, w.subscription, w.letterSink, letterHeader(header, w.settings.Sink, o.code), m.Data) {
		w.lettered(w.health.NotePosted)
		return true
	}
	return w.DeadLetters != nil && w.keep(m, about, o)
}

// letterSinkOf is where dead letters of a Subscription are posted, nil if they are not.
func (o *Options) letterSinkOf(namespace string, s Settings) *url.URL {
	if own, err := ParseSink(namespace, s.DeadLetterSink); err == nil {
		return own.url
	}
	return o.DeadLetterSink
}

// letterHeader is the header of an event that its sink answered with code.
func letterHeader(header http.Header, sink, code string) http.Header {
	header = maps.Clone(header)
	header[deadLetterDest], header[deadLetterCode] = []string{sink}, []string{code}
	return header
}

// postLetter posts to a dead letter sink, and tells whether that took the event.
func (o *Options) postLetter(ctx context.Context, limit time.Duration, subscription types.NamespacedName, to *url.URL, header http.Header, data []byte) bool {
	letter := o.Sender.send(ctx, limit, to, header, data)
	if !letter.taken() {
		o.Log.Warn("the dead letter sink takes no events", zap.Stringer("subscription", subscription), zap.String("problem", letter.problem))
	}
	return letter.taken()
}

// invalid gives a message up that is no event: no sink would ever take it. It tells whether NATS is
// told later.
func (w *worker) invalid(m *nats.Msg, about *nats.MsgMetadata, why error) (later bool) {
	w.metrics.Count(wire.AnswerInvalid)
	w.Log.Warn("a message is no event, and would never be delivered: it becomes a dead letter", zap.String("subscription", w.name),
		zap.Uint64("sequence", about.Sequence.Stream), zap.Error(why))
	o := outcome{code: wire.AnswerInvalid, problem: why.Error()}
	if w.DeadLetters == nil {
		if err := m.Term(); err != nil {
			w.Log.Warn("cannot delete a message that is no event: NATS sends it again", zap.String("subscription", w.name), zap.Error(err))
		}
		return false
	}
	if !w.keep(m, about, o) {
		w.again(m, about, "", o)
		return true
	}
	w.acknowledge(m)
	w.finish(about)
	return false
}

// keep stores an event in the stream of dead letters.
func (w *worker) keep(m *nats.Msg, about *nats.MsgMetadata, o outcome) bool {
	now := time.Now()
	l := &wire.Letter{
		Namespace: w.subscription.Namespace, Subscription: w.subscription.Name, UID: string(w.settings.UID),
		Sink: redact.URL(w.settings.Sink), Answer: o.code, Problem: o.problem, Published: about.Timestamp, First: now, Last: now,
	}
	if o.code != wire.AnswerInvalid {
		w.mu.Lock()
		t := w.traces[about.Sequence.Stream]
		w.mu.Unlock()
		l.Tries = about.NumDelivered - min(t.aside, about.NumDelivered)
		if !t.refused.IsZero() {
			l.First = t.refused
		}
	}
	// The time tells messages apart of streams that had the same name after each other.
	id := fmt.Sprintf("%s/%d/%d", w.source.Consumer, about.Sequence.Stream, about.Timestamp.UnixNano())
	if err := w.DeadLetters.Put(context.Background(), l, m, id); err != nil {
		w.Log.Warn("an event cannot be stored as a dead letter, and waits", zap.String("subscription", w.name), zap.Error(err))
		return false
	}
	w.lettered(w.health.NoteLetter)
	return true
}

// lettered says that an event became a dead letter.
func (w *worker) lettered(note func(now time.Time) time.Duration) {
	w.metrics.Count("dead-letter")
	if after := note(time.Now()); after > 0 {
		w.Changed(w.subscription, after)
	}
}

// InOrder tells whether the events of a Subscription are delivered one after the other. The error
// is letters.ErrNotDelivered.
func (d *Deliveries) InOrder(subscription types.NamespacedName) (bool, error) {
	w := d.worker(subscription)
	if w == nil {
		return false, letters.ErrNotDelivered
	}
	return w.settings.MaxInFlight == 1, nil
}

// Redeliver sends a dead letter to the sink of its Subscription, once, and marks it. An error means
// that it was not sent: the Subscription is not delivered to (letters.ErrNotDelivered), or the
// message is no event.
func (d *Deliveries) Redeliver(ctx context.Context, subscription types.NamespacedName, m *nats.Msg) (letters.Outcome, error) {
	header, err := eventHeader(m.Header)
	if err != nil {
		return letters.Outcome{}, fmt.Errorf("it is no event: %w", err)
	}
	header[redelivered] = []string{"true"}
	d.mu.Lock()
	w := d.workers[subscription]
	if w == nil {
		d.mu.Unlock()
		return letters.Outcome{}, letters.ErrNotDelivered
	}
	d.posting.Add(1)
	d.mu.Unlock()
	defer d.posting.Done()
	size := pull.Size(m)
	for !w.posts.TakePost(size) {
		select {
		case <-ctx.Done():
			return letters.Outcome{}, context.Cause(ctx)
		case <-w.ending:
			return letters.Outcome{}, letters.ErrNotDelivered
		case <-time.After(roomEvery):
		}
	}
	defer w.posts.GivePost(size)
	o := w.post(header, m.Data)
	if after := w.health.Note(o.problem, time.Now()); after > 0 {
		w.Changed(w.subscription, after)
	}
	return letters.Outcome{Answer: o.code, Problem: o.problem}, nil
}
