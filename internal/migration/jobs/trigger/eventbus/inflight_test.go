package eventbus

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/test/standin/natsstreaming"
)

// TestInFlightOfARealServer delivers events as Knative's dispatcher does, and
// compares what the monitoring port says.
func TestInFlightOfARealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("this test needs NATS Streaming, which -short does not build")
	}
	server, err := natsstreaming.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	channel, url := kyma.NATSChannel("kyma-system", "order-crea-x7k2p"), server.MonitoringURL
	healthy, dead := make(chan struct{}, 100), make(chan struct{}, 100)
	subscribe := func(durable string, got chan struct{}, answer error) *natsstreaming.Subscription {
		sub, err := server.Subscribe(channel, durable, time.Minute, 3, func([]byte) error {
			got <- struct{}{}
			return answer
		})
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	subscribe(kyma.NATSDurable("uid-healthy"), healthy, nil)
	offline := subscribe(kyma.NATSDurable("uid-offline"), make(chan struct{}, 100), nil)
	if err := offline.Close(); err != nil {
		t.Fatal(err)
	}
	if err := subscribe(kyma.NATSDurable("uid-gone"), make(chan struct{}, 100), nil).Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	subscribe(kyma.NATSDurable("uid-dead"), dead, errors.New("it does not take it"))
	for range 5 {
		if err := server.Publish(channel, []byte("{}")); err != nil {
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
	var f InFlight
	for deadline := time.Now().Add(10 * time.Second); ; {
		f = ReadInFlight(t.Context(), MonitorAt(url))
		if n, why := f.Of(channel, "uid-healthy"); n == 0 && why == "" || time.Now().After(deadline) {
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
		{"with its Knative Subscription the dispatcher deletes the durable one", channel, "uid-gone", 0, "no durable subscription uid-gone"},
		{"a subscription that is not there is unknown, not empty", channel, "uid-other", 0, "no durable subscription uid-other"},
		{"a channel that is not there is unknown, not empty", "other.kyma-system", "uid-dead", 0, "no channel other.kyma-system"},
	} {
		n, why := f.Of(tc.channel, tc.durable)
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
		f := ReadInFlight(t.Context(), MonitorAt(server.URL))
		server.Close()
		if n, why := f.Of("any", "any"); n != 0 || !strings.Contains(why, tc.want) {
			t.Errorf("%s: got %d, %q; want words %q", tc.reason, n, why, tc.want)
		}
	}
}

func TestWaiting(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		channel Channel
		sub     Durable
		want    uint64
	}{
		{"nothing was ever sent through it", Channel{}, Durable{}, 0},
		{"all is acknowledged", Channel{Messages: 5, FirstSequence: 1, LastSequence: 5}, Durable{LastSent: 5}, 0},
		{"not sent yet", Channel{Messages: 5, FirstSequence: 1, LastSequence: 5}, Durable{LastSent: 2}, 3},
		{"sent, not acknowledged", Channel{Messages: 5, FirstSequence: 1, LastSequence: 5}, Durable{LastSent: 5, Pending: 2}, 2},
		{"what has expired is not delivered", Channel{Messages: 2, FirstSequence: 9, LastSequence: 10}, Durable{LastSent: 2}, 2},
		{"all has expired", Channel{Messages: 0, FirstSequence: 11, LastSequence: 10}, Durable{LastSent: 2}, 0},
		{"subscribed to what came later", Channel{Messages: 1, FirstSequence: 1, LastSequence: 1}, Durable{LastSent: 4}, 0},
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
	f := ReadInFlight(t.Context(), MonitorAt(server.URL))
	for _, channel := range []string{"a", "b"} {
		if _, why := f.Of(channel, "d"); why != "" {
			t.Error(errors.New(why))
		}
	}
}
