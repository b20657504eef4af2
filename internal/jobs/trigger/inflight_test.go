package trigger

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-streaming-server/server"
	"github.com/nats-io/stan.go"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
)

// natsStreaming starts a real NATS Streaming and returns a connection to it and
// the URL of its monitoring port.
func natsStreaming(t *testing.T) (conn stan.Conn, monitoring string) {
	t.Helper()
	o, n := natsd.GetDefaultOptions(), natsd.DefaultNatsServerOptions
	o.ID = "kyma"
	// The server does not tell which port it chose for monitoring.
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.Host, n.Port, n.HTTPHost, n.HTTPPort = "127.0.0.1", -1, "127.0.0.1", free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := natsd.RunServerWithOpts(o, &n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	conn, err = stan.Connect("kyma", "knative", stan.NatsURL(s.ClientURL()), stan.ConnectWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, fmt.Sprintf("http://127.0.0.1:%d", n.HTTPPort)
}

// TestInFlightOfARealServer delivers events as Knative's dispatcher does, and
// compares what the monitoring port says.
func TestInFlightOfARealServer(t *testing.T) {
	conn, url := natsStreaming(t)
	channel := kyma.NATSChannel("kyma-system", "order-crea-x7k2p")
	healthy, dead := make(chan struct{}, 100), make(chan struct{}, 100)
	subscribe := func(durable string, got chan struct{}, answer bool) stan.Subscription {
		sub, err := conn.Subscribe(channel, func(m *stan.Msg) {
			if answer {
				if err := m.Ack(); err != nil {
					t.Errorf("cannot acknowledge: %v", err)
				}
			}
			got <- struct{}{}
		}, stan.DurableName(durable), stan.SetManualAckMode(), stan.AckWait(time.Minute), stan.MaxInflight(3))
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	subscribe(kyma.NATSDurable("uid-healthy"), healthy, true)
	offline := subscribe(kyma.NATSDurable("uid-offline"), make(chan struct{}, 100), true)
	if err := offline.Close(); err != nil {
		t.Fatal(err)
	}
	subscribe(kyma.NATSDurable("uid-dead"), dead, false)
	for range 5 {
		if err := conn.Publish(channel, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		<-healthy
	}
	for range 3 { // and no more, as none is acknowledged
		<-dead
	}
	// An acknowledgement is on its way when the subscriber has sent it.
	var f inFlight
	for deadline := time.Now().Add(10 * time.Second); ; {
		f = readInFlight(t.Context(), monitorAt(url))
		if n, why := f.of(channel, "uid-healthy"); n == 0 && why == "" || time.Now().After(deadline) {
			break
		}
	}
	for _, tc := range []struct {
		reason, channel, durable string
		want                     uint64
		unknown                  string
	}{
		{"all was delivered", channel, "uid-healthy", 0, ""},
		{"three were sent and not acknowledged, two not even sent", channel, "uid-dead", 5, ""},
		{"a dispatcher that is away gets its events later", channel, "uid-offline", 5, ""},
		{"a subscription that is not there is unknown, not empty", channel, "uid-other", 0, "no durable subscription uid-other"},
		{"a channel that is not there is unknown, not empty", "other.kyma-system", "uid-dead", 0, "no channel other.kyma-system"},
	} {
		n, why := f.of(tc.channel, tc.durable)
		if n != tc.want || (why == "") != (tc.unknown == "") || !strings.Contains(why, tc.unknown) {
			t.Errorf("%s: got %d, %q; want %d, %q", tc.reason, n, why, tc.want, tc.unknown)
		}
	}
}

func TestInFlightUnreadable(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		handler http.HandlerFunc
		want    string
	}{
		{"an error is no answer", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "502"},
		{"another server", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "not NATS Streaming"},
		{"another server that speaks JSON", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }, "not NATS Streaming"},
	} {
		server := httptest.NewServer(tc.handler)
		f := readInFlight(t.Context(), monitorAt(server.URL))
		server.Close()
		if n, why := f.of("any", "any"); n != 0 || !strings.Contains(why, tc.want) {
			t.Errorf("%s: got %d, %q; want words %q", tc.reason, n, why, tc.want)
		}
	}
}

func TestWaiting(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		channel natsChannel
		sub     natsSubscription
		want    uint64
	}{
		{"nothing was ever sent through it", natsChannel{}, natsSubscription{}, 0},
		{"all is acknowledged", natsChannel{Messages: 5, FirstSequence: 1, LastSequence: 5}, natsSubscription{LastSent: 5}, 0},
		{"not sent yet", natsChannel{Messages: 5, FirstSequence: 1, LastSequence: 5}, natsSubscription{LastSent: 2}, 3},
		{"sent, not acknowledged", natsChannel{Messages: 5, FirstSequence: 1, LastSequence: 5}, natsSubscription{LastSent: 5, Pending: 2}, 2},
		{"what has expired is not delivered", natsChannel{Messages: 2, FirstSequence: 9, LastSequence: 10}, natsSubscription{LastSent: 2}, 2},
		{"all has expired", natsChannel{Messages: 0, FirstSequence: 11, LastSequence: 10}, natsSubscription{LastSent: 2}, 0},
		{"subscribed to what came later", natsChannel{Messages: 1, FirstSequence: 1, LastSequence: 1}, natsSubscription{LastSent: 4}, 0},
	} {
		if got := tc.channel.waiting(tc.sub); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.reason, got, tc.want)
		}
	}
}

// TestReadInFlightInPages: a channel that no page brought would be unknown.
func TestReadInFlightInPages(t *testing.T) {
	pages := map[string]string{
		"0": `{"server_id":"s","count":1,"total":2,"channels":[{"name":"a","subscriptions":[{"durable_name":"d"}]}]}`,
		"1": `{"server_id":"s","count":1,"total":2,"channels":[{"name":"b","subscriptions":[{"durable_name":"d"}]}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, ok := pages[r.URL.Query().Get("offset")]
		if !ok {
			t.Errorf("asked for %s", r.URL)
		}
		_, _ = w.Write([]byte(page))
	}))
	defer server.Close()
	f := readInFlight(t.Context(), monitorAt(server.URL))
	for _, channel := range []string{"a", "b"} {
		if _, why := f.of(channel, "d"); why != "" {
			t.Error(errors.New(why))
		}
	}
}
