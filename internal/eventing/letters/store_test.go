package letters_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
)

// TestOneRequest: NATS is asked once for a dead letter, and once to delete it. What is not deleted
// is said: a dead letter whose sink has taken it would be delivered again.
func TestOneRequest(t *testing.T) {
	conn := natsserver.Start(t, "jetstream { store_dir: /data }", nil).Connect(t)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	store := &letters.Store{JetStream: func() (jetstream.JetStream, error) { return js, nil }}
	asked := make(chan *nats.Msg, 100)
	if _, err := conn.ChanSubscribe("$JS.API.>", asked); err != nil {
		t.Fatal(err)
	}
	// requests are what NATS was asked meanwhile.
	requests := func() (all []string) {
		for {
			select {
			case m := <-asked:
				all = append(all, strings.TrimPrefix(m.Subject, "$JS.API.STREAM."))
			case <-time.After(50 * time.Millisecond):
				return all
			}
		}
	}
	get := func(sequence uint64) error {
		_, _, err := store.Get(t.Context(), sequence)
		return err
	}
	remove := func(sequence uint64) error { return store.Delete(t.Context(), sequence) }
	created := func(denied bool) {
		t.Helper()
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: backend.DeadLetters, Subjects: []string{backend.DeadLetterSubjects}, DenyDelete: denied}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"1", "2"} {
			of := &nats.Msg{Header: nats.Header{"ce-id": {id}, "ce-type": {"a.b"}, "ce-source": {"s"}}, Data: []byte(id)}
			if err := store.Put(t.Context(), &wire.Letter{Namespace: "shop", Subscription: "orders", Answer: "400", Published: time.Now()}, of, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	steps := func(cases ...step) {
		t.Helper()
		for _, tc := range cases {
			requests()
			err := tc.do(tc.sequence)
			if tc.want == nil && err != nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", tc.reason, err, tc.want)
			}
			if all := requests(); len(all) != max(1, tc.requests) {
				t.Errorf("%s: NATS was asked %q", tc.reason, all)
			}
		}
	}
	steps(step{"no stream is there to read from", get, 1, letters.ErrNone, 0}, step{"no stream is there to delete from", remove, 1, nil, 0})
	created(false)
	steps(
		step{"it is there", get, 2, nil, 0}, step{"it is deleted", remove, 2, nil, 0}, step{"it is gone", get, 2, letters.ErrNone, 0},
		step{"it is deleted once more", remove, 2, nil, 0}, step{"there is none yet", get, 9, letters.ErrNone, 0}, step{"nobody had it", remove, 9, nil, 2},
	)
	if err := js.DeleteStream(t.Context(), backend.DeadLetters); err != nil {
		t.Fatal(err)
	}
	created(true)
	steps(step{"NATS does not delete it", remove, 1, letters.ErrUnavailable, 2}, step{"it is there still", get, 1, nil, 0})

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.Delete(ended, 1); !errors.Is(err, letters.ErrUnavailable) {
		t.Errorf("nobody waits for the answer: %v", err)
	}
}

// step is a request, and what becomes of it.
type step struct {
	reason   string
	do       func(sequence uint64) error
	sequence uint64
	want     error
	requests int // 1 if it is 0
}
