package retry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/pull"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

const (
	// Behind is how many sequences an event that is refused may be behind the last one that its
	// sink has taken. Where taken events are kept (stream.KeepsTaken), all of the Subscription that
	// came after it take space.
	Behind = 10_000

	timeout = 5 * time.Second

	// What is remembered of an event that is stored again: its subject, when it was published and
	// refused first, both in RFC 3339, and how often it was sent.
	subjectHeader   = "Eventing-Subject"
	publishedHeader = "Eventing-Published"
	refusedHeader   = "Eventing-Refused"
	triesHeader     = "Eventing-Tries"
)

// ErrNotKept says that an event need not be stored again: the stream keeps nothing because of it,
// or its consumer would not get it.
var ErrNotKept = errors.New("the consumer gets no events that are stored again")

// Put stores an event of a consumer again, at the end of the stream, where only that one gets it.
// refused is when its sink refused it first, and tries how often it was sent. Without an error, the
// first one can be acknowledged. It takes at most five seconds. A jetstream.APIError says that the
// stream takes nothing.
func Put(source pull.Source, m *nats.Msg, about *nats.MsgMetadata, refused time.Time, tries uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	subject := backend.RetrySubject(source.Consumer)
	js, config, err := settingsOf(ctx, source)
	if err != nil {
		return err
	}
	if !stream.Consumes(config, subject) {
		return ErrNotKept
	}
	again := &nats.Msg{Subject: subject, Data: m.Data, Header: maps.Clone(m.Header)}
	maps.DeleteFunc(again.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Nats-") })
	again.Header.Set(subjectHeader, m.Subject)
	again.Header.Set(publishedHeader, about.Timestamp.UTC().Format(time.RFC3339Nano))
	again.Header.Set(refusedHeader, refused.UTC().Format(time.RFC3339Nano))
	again.Header.Set(triesHeader, strconv.FormatUint(tries, 10))
	id := fmt.Sprintf("%s/%d/%d", source.Consumer, about.Sequence.Stream, about.Timestamp.UnixNano())
	_, err = js.PublishMsg(ctx, again, jetstream.WithMsgID(id), jetstream.WithExpectStream(source.Stream), jetstream.WithRetryAttempts(0))
	return err
}

// Restore makes an event that Put has stored the one that it was, with its subject, its age and its
// number of tries. refused is when it was refused first; zero if that is not known. ok is false for
// another event.
func Restore(m *nats.Msg, about *nats.MsgMetadata) (refused time.Time, ok bool) {
	if !backend.IsRetry(m.Subject) {
		return refused, false
	}
	m.Subject = m.Header.Get(subjectHeader)
	if published, err := time.Parse(time.RFC3339Nano, m.Header.Get(publishedHeader)); err == nil {
		about.Timestamp = published
	}
	if tries, err := strconv.ParseUint(m.Header.Get(triesHeader), 10, 64); err == nil {
		about.NumDelivered += tries
	}
	refused, _ = time.Parse(time.RFC3339Nano, m.Header.Get(refusedHeader))
	return refused, true
}

// Unasked tells whether a consumer has the subject of an event no more, which was stored again
// when it had. It is false if that cannot be found out.
func Unasked(source pull.Source, subject string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, config, err := settingsOf(ctx, source)
	return err == nil && !stream.Consumes(config, subject)
}

// settingsOf are the settings of a consumer now.
func settingsOf(ctx context.Context, source pull.Source) (js jetstream.JetStream, config jetstream.ConsumerConfig, err error) {
	if js, err = jetstream.New(source.Conn); err != nil {
		return nil, config, err
	}
	is, err := js.Consumer(ctx, source.Stream, source.Consumer)
	if err != nil {
		return nil, config, err
	}
	return js, is.CachedInfo().Config, nil
}
