package manager

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestQuietAndDangling: what is said of a closed stream needs several looks, and begins anew with
// each event and each other stream.
func TestQuietAndDangling(t *testing.T) {
	began := time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)
	closed := stream.Closed(stream.Config(operatorv1alpha1.BackendConfig{}, "e1", true), began)
	idle, busy := []*jetstream.ConsumerInfo{{}}, []*jetstream.ConsumerInfo{{}, {NumAckPending: 1}}
	type look struct {
		after           time.Duration // since the close
		took            time.Duration
		messages, last  uint64
		another         bool // stream of the same name
		behind          bool // a copy is
		never           bool // was the stream open
		consumers       []*jetstream.ConsumerInfo
		quiet, dangling bool
	}
	for _, tc := range []struct {
		reason string
		looks  []look
	}{
		{"empty, and stays so", []look{{after: 7 * time.Second, last: 5}, {after: 21 * time.Second, last: 5}, {after: 22 * time.Second, last: 5, quiet: true}}},
		{"an answer that took long", []look{{after: 7 * time.Second, took: 3 * time.Second, last: 5}, {after: 24 * time.Second, last: 5}, {after: 25 * time.Second, took: 3 * time.Second, last: 5, quiet: true}}},
		{"what is seen too early does not count", []look{{after: 5 * time.Second, last: 5}, {after: 20 * time.Second, last: 5}, {after: 34 * time.Second, last: 5}, {after: 35 * time.Second, last: 5, quiet: true}}},
		{"an event came and went", []look{{after: 7 * time.Second, last: 5}, {after: 22 * time.Second, last: 6}, {after: 37 * time.Second, last: 6, quiet: true}}},
		{"an event is there", []look{{after: 7 * time.Second, last: 5}, {after: 10 * time.Second, messages: 1, last: 5}, {after: 22 * time.Second, last: 5}}},
		{"another stream", []look{{after: 7 * time.Second, last: 5}, {after: 22 * time.Second, last: 5, another: true}}},
		{"a copy is behind", []look{{after: 7 * time.Second, last: 5}, {after: 22 * time.Second, last: 5, behind: true}, {after: 30 * time.Second, last: 5}}},
		{"never opened", []look{{never: true, quiet: true}}},
		{"never opened, says a copy that is behind", []look{{never: true, behind: true}}},
		{"no event came, says a copy that is behind", []look{{after: 7 * time.Second, behind: true}, {after: 22 * time.Second, behind: true}}},
		{"events that nobody waits for", []look{
			{after: time.Minute, messages: 2, last: 5, consumers: idle}, {after: 10 * time.Minute, messages: 2, last: 5, consumers: idle},
			{after: 11 * time.Minute, messages: 2, last: 5, consumers: idle, dangling: true}, {after: 12 * time.Minute, messages: 2, last: 5, consumers: busy},
			{after: 13 * time.Minute, messages: 2, last: 5, consumers: idle},
		}},
		{"events that somebody waits for", []look{{after: time.Minute, messages: 2, last: 5, consumers: busy}, {after: 20 * time.Minute, messages: 2, last: 5, consumers: busy}}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var c connection
			for i, l := range tc.looks {
				info := &jetstream.StreamInfo{Config: closed, Created: began, State: jetstream.StreamState{Msgs: l.messages, LastSeq: l.last}}
				if l.another {
					info.Created = began.Add(time.Second)
				}
				if l.never {
					info.Config = stream.Config(operatorv1alpha1.BackendConfig{}, "e1", false)
				}
				if l.behind {
					info.Cluster = &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{{Current: false}}}
				}
				at := reading{began: began.Add(l.after), ended: began.Add(l.after + l.took)}
				quiet := c.quiet(info, at, &decide.Rules{DrainDelay: 6 * time.Second, DrainWatch: 15 * time.Second})
				if dangling := c.dangling(info, l.consumers, at); quiet != l.quiet || dangling != l.dangling {
					t.Errorf("look %d: quiet %v, dangling %v, want %v and %v", i+1, quiet, dangling, l.quiet, l.dangling)
				}
			}
		})
	}
}

// TestSince: for how long NATS is away, and one of its servers behind the others.
func TestSince(t *testing.T) {
	began := time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)
	var c connection
	for i, look := range []struct {
		after            time.Duration
		connected        bool
		behind           []string
		away, behindThen time.Duration
	}{
		{},
		{after: 3 * time.Second, away: 3 * time.Second},
		{after: 4 * time.Second, connected: true, behind: []string{"a"}},
		{after: 9 * time.Second, connected: true, behind: []string{"b"}, behindThen: 5 * time.Second},
		{after: 10 * time.Second, connected: true},
		{after: 11 * time.Second, connected: true, behind: []string{"a"}},
		{after: 12 * time.Second},
		{after: 14 * time.Second, away: 2 * time.Second},
	} {
		w := &observed.World{Now: began.Add(look.after), NATS: observed.NATS{Connected: look.connected, Behind: look.behind}}
		if c.since(w); w.NATS.Away != look.away || w.NATS.BehindFor != look.behindThen {
			t.Errorf("look %d: away %s, behind %s", i+1, w.NATS.Away, w.NATS.BehindFor)
		}
	}
}

// TestEstablished: a connection that is broken counts as one if it is there again in a moment. That
// is waited for once.
func TestEstablished(t *testing.T) {
	server := natsserver.Start(t, "", nil)
	conn := server.Connect(t, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	broken := func(context.Context) error {
		if conn.IsConnected() {
			return errors.New("it is connected")
		}
		return nil
	}
	var c connection
	look := func(reason string, want bool) (took time.Duration) {
		t.Helper()
		began := time.Now()
		if is := c.established(t.Context(), conn); is != want {
			t.Errorf("%s: established %v, want %v", reason, is, want)
		}
		return time.Since(began)
	}
	look("connected", true)

	// The server is there again before the time is over.
	server.Kill()
	poll.Until(t, 10*time.Second, "the connection is broken", broken)
	server.Launch()
	look("there again", true)

	server.Kill()
	poll.Until(t, 10*time.Second, "the connection is broken", broken)
	if took := look("away", false); took < reconnectGrace {
		t.Errorf("it was waited for %s, want %s", took, reconnectGrace)
	}
	c.away = time.Now()
	if took := look("known to be away", false); took >= reconnectGrace {
		t.Errorf("it was waited for %s, although it was known", took)
	}
}

// TestBehind: the copies of a stream that are not up to date.
func TestBehind(t *testing.T) {
	replicas := []*jetstream.PeerInfo{{Name: "eventing-nats-2"}, {Name: "eventing-nats-0", Current: true}, {Name: "eventing-nats-1"}}
	if is := behind(&jetstream.StreamInfo{Cluster: &jetstream.ClusterInfo{Leader: "eventing-nats-3", Replicas: replicas}}); !slices.Equal(is, []string{"eventing-nats-1", "eventing-nats-2"}) {
		t.Errorf("%q are behind", is)
	}
	if is := behind(&jetstream.StreamInfo{}); is != nil {
		t.Errorf("%q are behind a server that is alone", is)
	}
}
