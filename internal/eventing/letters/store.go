package letters

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
)

const (
	// requestTimeout bounds each request to NATS.
	requestTimeout = 5 * time.Second
	// mostScanned is how many dead letters one page looks at: with a filter that few pass, it has
	// fewer, and the next page goes on there.
	mostScanned = 5_000
	// fetched is how many are asked for at a time. Without their data, each has some KiB at most.
	fetched = 250
	// idleConsumer is when NATS deletes the consumer of a page that nobody deleted.
	idleConsumer = 30 * time.Second
)

var (
	// ErrNone says that there is no such dead letter, or no stream of them.
	ErrNone = errors.New("there is no such dead letter")
	// ErrUnavailable says that NATS cannot be asked now.
	ErrUnavailable = errors.New("NATS cannot be reached")
	// ErrNotStored says that there is no NATS to store dead letters in.
	ErrNotStored = errors.New("no dead letters are stored, since the mesh carries the events and eventing has no NATS. What a sink does not take goes to the deadLetterSink of its Subscription; without one, the client is told, and has the event")
	errGap       = errors.New("a message was lost on the way")
	// ErrFull says that the stream of dead letters takes no more.
	ErrFull = errors.New("the stream of dead letters is full")
)

// Store is the stream of dead letters.
type Store struct {
	// JetStream returns what NATS is asked with, or an error if there is no connection:
	// ErrNotStored if there is to be none.
	JetStream func() (jetstream.JetStream, error)
}

// Put stores an event that is given up. id is the same each time for the same event and
// Subscription: what is stored twice within the window of the stream is stored once.
func (s *Store) Put(ctx context.Context, l *wire.Letter, of *nats.Msg, id string) error {
	js, err := s.JetStream()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = js.PublishMsg(ctx, message(l, of), jetstream.WithMsgID(id), jetstream.WithExpectStream(backend.DeadLetters))
	if refused := (*jetstream.APIError)(nil); errors.As(err, &refused) && (refused.ErrorCode == errorResources || refused.ErrorCode == errorStoreFailed) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// Answers of NATS when there is no room: for the account, because its volume is full, and in the
// stream (JSAccountResourcesExceededErr and JSStreamStoreFailedF in errors.json of nats-server).
const (
	errorResources   jetstream.ErrorCode = 10002
	errorStoreFailed jetstream.ErrorCode = 10077
)

// errorSequence is what NATS answers of a message that is deleted already
// (JSSequenceNotFoundErrF).
const errorSequence nats.ErrorCode = 10043

// Page are dead letters in the order of their sequences.
type Page struct {
	Items []wire.Letter `json:"items"`
	// Continue is the sequence to begin the next page at; 0 at the end.
	Continue uint64 `json:"continue,omitempty,string"`
	// Total is how many there are of this Subscription, or of all, the other conditions of the
	// filter left aside.
	Total uint64 `json:"total"`
}

// List returns at most limit dead letters from a sequence on. It reads no data.
func (s *Store) List(ctx context.Context, f wire.Filter, from uint64, limit int) (Page, error) {
	page := Page{Items: []wire.Letter{}}
	in, err := s.stream(ctx)
	if errors.Is(err, ErrNone) {
		return page, nil
	}
	if err != nil {
		return page, err
	}
	filter := backend.DeadLetterFilter(f.Namespace, f.Subscription)
	counts, err := countsOf(ctx, in, filter)
	if err != nil {
		return page, err
	}
	for _, n := range counts {
		page.Total += n
	}
	last := in.CachedInfo().State.LastSeq
	from = max(from, in.CachedInfo().State.FirstSeq)
	if page.Total == 0 || from > last {
		return page, nil
	}
	consumer, err := in.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: filter, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, HeadersOnly: true,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: idleConsumer,
	})
	if err != nil {
		return page, unavailable(err)
	}
	// NATS keeps it for a while, and takes a limited number of them.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		_ = in.DeleteConsumer(ctx, consumer.CachedInfo().Name) // then it goes by itself
	}()
	read := uint64(0)
	for scanned := 0; scanned < mostScanned; {
		batch, err := consumer.FetchNoWait(min(fetched, mostScanned-scanned))
		if err != nil {
			return page, unavailable(err)
		}
		n, end := 0, false
		for m := range batch.Messages() {
			n++
			about, err := m.Metadata()
			if err != nil || end {
				continue
			}
			if read++; about.Sequence.Consumer != read {
				return page, unavailable(errGap)
			}
			if about.Sequence.Stream > last {
				end = true
				continue
			}
			if len(page.Items) == limit {
				page.Continue, end = about.Sequence.Stream, true
				continue
			}
			from = about.Sequence.Stream + 1
			bytes, _ := strconv.Atoi(m.Headers().Get(nats.MsgSize))
			if l, err := parse(m.Subject(), m.Headers(), about.Sequence.Stream, about.Timestamp, bytes); err == nil && f.Passes(&l) {
				page.Items = append(page.Items, l)
			}
		}
		if err := batch.Error(); err != nil {
			return page, unavailable(err)
		}
		if scanned += n; n == 0 || end || from > last {
			return page, nil
		}
	}
	page.Continue = from
	return page, nil
}

// Get returns a dead letter with its message.
func (s *Store) Get(ctx context.Context, sequence uint64) (*wire.Letter, *nats.Msg, error) {
	js, err := s.jetStream()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	raw, err := js.GetMsg(backend.DeadLetters, sequence, nats.Context(ctx))
	switch {
	case errors.Is(err, nats.ErrMsgNotFound), errors.Is(err, nats.ErrStreamNotFound):
		return nil, nil, ErrNone
	case err != nil:
		return nil, nil, unavailable(err)
	}
	l, err := parse(raw.Subject, raw.Header, raw.Sequence, raw.Time, len(raw.Data))
	if err != nil {
		return nil, nil, err
	}
	return &l, &nats.Msg{Subject: raw.Subject, Header: raw.Header, Data: raw.Data}, nil
}

// Delete deletes a dead letter. One that is gone is no error.
func (s *Store) Delete(ctx context.Context, sequence uint64) error {
	js, err := s.jetStream()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = js.DeleteMsg(backend.DeadLetters, sequence, nats.Context(ctx))
	switch refused := (*nats.APIError)(nil); {
	case err == nil, errors.Is(err, nats.ErrStreamNotFound):
		return nil
	case !errors.As(err, &refused):
		return unavailable(err)
	case refused.ErrorCode == errorSequence:
		return nil
	}
	// Of a sequence that no message has had, NATS says the same as of one that it cannot delete.
	if _, _, gone := s.Get(ctx, sequence); errors.Is(gone, ErrNone) {
		return nil
	}
	return unavailable(err)
}

// Counts are how many dead letters each Subscription has, by subject. Without a stream there are
// none.
func (s *Store) Counts(ctx context.Context) (map[string]uint64, error) {
	in, err := s.stream(ctx)
	switch {
	case errors.Is(err, ErrNone):
		return nil, nil
	case err != nil:
		return nil, err
	case in.CachedInfo().State.Msgs == 0:
		return nil, nil
	}
	return countsOf(ctx, in, backend.DeadLetterSubjects)
}

func countsOf(ctx context.Context, in jetstream.Stream, filter string) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	info, err := in.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, unavailable(err)
	}
	return info.State.Subjects, nil
}

// connected returns what NATS is asked with.
func (s *Store) connected() (jetstream.JetStream, error) {
	js, err := s.JetStream()
	switch {
	case errors.Is(err, ErrNotStored):
		return nil, err
	case err != nil:
		return nil, unavailable(err)
	}
	return js, nil
}

// jetStream returns the older interface, which asks for one message by the name of the stream: the
// newer one asks for the stream first. It also tells why a message was not deleted.
func (s *Store) jetStream() (nats.JetStreamContext, error) {
	js, err := s.connected()
	if err != nil {
		return nil, err
	}
	return js.Conn().JetStream()
}

func (s *Store) stream(ctx context.Context) (jetstream.Stream, error) {
	js, err := s.connected()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	in, err := js.Stream(ctx, backend.DeadLetters)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, ErrNone
	case err != nil:
		return nil, unavailable(err)
	}
	return in, nil
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }
