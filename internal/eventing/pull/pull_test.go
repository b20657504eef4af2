package pull

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/budget"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// connectTo connects to a server as anybody.
func connectTo(t *testing.T, s *natsserver.Server) *nats.Conn {
	t.Helper()
	return s.Connect(t, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectBufSize(-1))
}

// next is the next value of a channel.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute): // other tests run beside
		t.Fatal("nothing comes")
		panic("unreachable")
	}
}

// TestRequests: how many messages are asked for, and when. The test plays the consumer, and says
// what real ones say seldom.
func TestRequests(t *testing.T) {
	t.Parallel() // it waits
	server := natsserver.Start(t, "", nil)
	controller, consumer := connectTo(t, server), connectTo(t, server)
	type request struct{ reply, batch string }
	requests := make(chan request, 10)
	if _, err := consumer.Subscribe("$JS.API.CONSUMER.MSG.NEXT.s.c", func(m *nats.Msg) {
		var of struct{ Batch json.Number }
		if err := json.Unmarshal(m.Data, &of); err != nil {
			t.Error(err)
		}
		requests <- request{m.Reply, of.Batch.String()}
	}); err != nil {
		t.Fatal(err)
	}
	if err := consumer.Flush(); err != nil {
		t.Fatal(err)
	}
	handled, lost := make(chan string, 10), make(chan string, 1)
	p, err := Start(Source{controller, "s", "c"}, 4, NewPace(), budget.NewShare(nil, nil), func(m *nats.Msg, free func(int)) {
		handled <- string(m.Data)
		free(1)
	}, func(reason string) { lost <- reason })
	if err != nil {
		t.Fatal(err)
	}
	first := next(t, requests)
	say := func(of string, header nats.Header) {
		t.Helper()
		m := &nats.Msg{Subject: first.reply, Data: []byte(of), Header: header}
		if of != "" {
			m.Reply = "taken"
		}
		if err := consumer.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	status := func(code, description, left string) nats.Header {
		h := nats.Header{"Status": {code}, "Description": {description}}
		if left != "" {
			h.Set("Nats-Pending-Messages", left)
		}
		return h
	}
	for _, tc := range []struct {
		reason string
		say    func()
		want   string // the batch of the next request; "" for none
	}{
		{"the first request", func() {}, "4"},
		{"half of the messages are still to come", func() { say("1", nil); say("2", nil) }, ""},
		{"a heartbeat", func() { say("", status("100", "Idle Heartbeat", "")) }, ""},
		{"the end of a batch, which is told in addition to its last message", func() { say("", status("409", "Batch Completed", "0")) }, ""},
		{"less than half", func() { say("3", nil) }, "3"},
		{"a message whose header looks like a refusal", func() { say("4", status("409", "Consumer Deleted", "")) }, ""},
		{"the time of a request is over", func() { say("", status("408", "Request Timeout", "2")) }, "3"},
		{"another leader", func() { say("", status("409", "Leadership Change", "")) }, "4"},
		{"a timeout without a number", func() { say("", status("408", "Request Timeout", "")) }, "4"},
		{"a status that nobody knows", func() { say("", status("599", "", "")) }, "4"},
		{"more is said to be left than was asked for", func() { say("", status("408", "Request Timeout", "99")) }, "4"},
	} {
		got := first.batch
		if tc.reason != "the first request" {
			tc.say()
			got = ""
			wait := 20 * time.Second
			if tc.want == "" {
				wait = 2 * pause
			}
			select {
			case r := <-requests:
				got = r.batch
			case <-time.After(wait):
			}
		}
		if got != tc.want {
			t.Errorf("%s: a request for %q messages, want %q", tc.reason, got, tc.want)
		}
	}
	for _, want := range []string{"1", "2", "3", "4"} {
		if got := next(t, handled); got != want {
			t.Errorf("got message %s, want %s", got, want)
		}
	}
	say("", status("409", "Consumer Deleted", ""))
	if diff := cmp.Diff("409 Consumer Deleted", next(t, lost)); diff != "" {
		t.Error(diff)
	}
	p.Stop()
	next(t, p.Closed())
	if len(requests)+len(lost) > 0 {
		t.Errorf("after the end: %d requests, %d losses", len(requests), len(lost))
	}
}

// TestPull: what ends requests for messages of real consumers, and what does not.
func TestPull(t *testing.T) {
	server := natsserver.Start(t, "jetstream { store_dir: /data }", nil)
	conn := connectTo(t, server)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "s", Subjects: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	start := func(over *nats.Conn, consumer string) (p *Pull, handled, lost chan string) {
		t.Helper()
		handled, lost = make(chan string, 10), make(chan string, 10)
		p, err := Start(Source{over, "s", consumer}, 1, NewPace(), budget.NewShare(nil, nil), func(m *nats.Msg, free func(int)) {
			defer free(1)
			if err := m.Ack(); err != nil {
				t.Error(err)
			}
			handled <- string(m.Data) // the test may close the connection now
		}, func(reason string) { lost <- reason })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // before the connection is closed: a message of another pull may be on its way
			p.Stop()
			next(t, p.Closed())
		})
		return p, handled, lost
	}
	create := func(name string) {
		t.Helper()
		if _, err := js.CreateConsumer(ctx, "s", jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(text string) {
		t.Helper()
		poll.Until(t, 20*time.Second, "a message is published", func(ctx context.Context) error {
			_, err := js.Publish(ctx, "a", []byte(text))
			return err
		})
	}
	expect := func(reason string, from <-chan string, want string) {
		t.Helper()
		if got := next(t, from); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}

	_, _, lost := start(conn, "none")
	expect("a consumer that is not there", lost, "503")

	create("deleted")
	_, handled, lost := start(conn, "deleted")
	publish("1")
	expect("a message", handled, "1")
	poll.Until(t, 20*time.Second, "a request waits", func(ctx context.Context) error {
		c, err := js.Consumer(ctx, "s", "deleted")
		if err == nil && c.CachedInfo().NumWaiting == 0 {
			err = errors.New("none")
		}
		return err
	})
	if err := js.DeleteConsumer(ctx, "s", "deleted"); err != nil {
		t.Fatal(err)
	}
	expect("a consumer that is deleted", lost, "Consumer Deleted")

	create("c")
	other := connectTo(t, server)
	_, handled, lost = start(other, "c")
	expect("what was there before", handled, "1")
	other.Close()
	expect("a connection that is closed", lost, "closed")
	_, _, lost = start(conn, "c")
	other = connectTo(t, server)
	other.Close()
	if _, err := Start(Source{other, "s", "c"}, 1, NewPace(), budget.NewShare(nil, nil), nil, nil); err == nil {
		t.Error("a closed connection is no error")
	}
	if len(lost) > 0 {
		t.Errorf("lost: %s", <-lost)
	}

	create("stopped")
	p, handled, lost := start(conn, "stopped")
	expect("before a restart", handled, "1")
	server.Kill()
	server.Launch()
	publish("2")
	for got := ""; got != "2"; { // a server that was killed may send again what it had not stored
		got = next(t, handled)
	}
	p.Stop()
	p.Stop()
	next(t, p.Closed())
	publish("3")
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(handled)+len(lost) > 0 {
		t.Errorf("after the end: %d messages, %d losses", len(handled), len(lost))
	}
}

// TestPullWaits: while NATS has many acknowledgments to answer, a Pull that knows of stored
// messages asks for no more, and one that does not gets what comes.
func TestPullWaits(t *testing.T) {
	t.Parallel() // it waits
	server := natsserver.Start(t, "jetstream { store_dir: /data }", nil)
	conn := connectTo(t, server)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	pace := NewPace()
	pace.recent = time.Hour
	pulls, handled := map[string]*Pull{}, map[string]chan string{}
	for consumer, stored := range map[string]int{"behind": 12, "idle": 1} {
		if _, err := js.CreateConsumer(t.Context(), "s", jetstream.ConsumerConfig{Durable: consumer, FilterSubject: consumer, AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			t.Fatal(err)
		}
		for i := range stored {
			if _, err := js.Publish(t.Context(), consumer, []byte(strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		handled[consumer] = make(chan string, 100)
	}
	busy := make([]*Acknowledgment, many)
	for i := range busy {
		busy[i] = pace.Acknowledge()
	}
	for consumer := range handled {
		p, err := Start(Source{conn, "s", consumer}, 4, pace, budget.NewShare(nil, nil), func(m *nats.Msg, free func(int)) {
			free(1)
			handled[consumer] <- string(m.Data)
		}, func(reason string) { t.Errorf("%s is lost: %s", consumer, reason) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			p.Stop()
			next(t, p.Closed())
		})
		pulls[consumer] = p
	}
	expect := func(consumer string, from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if got := next(t, handled[consumer]); got != strconv.Itoa(i) {
				t.Errorf("%s: message %s, want %d", consumer, got, i)
			}
		}
	}
	expect("behind", 0, 4) // nothing was known when they were asked for
	for i := 1; i < 20; i++ {
		if _, err := js.Publish(t.Context(), "idle", []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		expect("idle", i-1, i)
	}
	waits := func(reason string) {
		t.Helper()
		p := pulls["behind"]
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.queued || p.asked() > 0 || len(handled["behind"]) > 0 {
			t.Errorf("%s: waits %t, asks for %d, and has %d messages", reason, p.queued, p.asked(), len(handled["behind"]))
		}
	}
	waits("many are unanswered")
	answer(busy[:4])
	expect("behind", 4, 8)
	waits("as many came as were acknowledged")
	answer(busy[4:])
	expect("behind", 8, 12)
	expect("idle", 19, 20)
}
