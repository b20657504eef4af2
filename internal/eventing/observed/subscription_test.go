package observed

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// TestNames: a message for people names a few Subscriptions, in an order that stays.
func TestNames(t *testing.T) {
	t.Parallel()
	var all []Subscription
	for _, name := range []string{"f", "e", "d", "c", "b", "a"} {
		all = append(all, Subscription{Namespace: "shop", Name: name})
	}
	for _, tc := range []struct {
		of   []Subscription
		want string
	}{
		{nil, ""},
		{all[:2], "shop/e, shop/f"},
		{all[:5], "shop/b, shop/c, shop/d, shop/e, shop/f"},
		{all, "shop/a, shop/b, shop/c, shop/d, shop/e and others"},
	} {
		if got := Names(tc.of); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// TestRefused: who is being deleted, or gets nothing, refuses nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := &World{Subscriptions: []Subscription{
		{Namespace: "shop", Name: "takes", Valid: true}, {Namespace: "shop", Name: "refuses", Valid: true, Refused: true},
		{Namespace: "shop", Name: "deleted", Valid: true, Refused: true, Deleting: true}, {Namespace: "shop", Name: "invalid", Refused: true},
	}}
	if got := Names(w.Refused()); got != "shop/refuses" || len(w.Subscriptions) != 4 || w.Subscriptions[1].Name != "refuses" {
		t.Errorf("%s of %v", got, w.Subscriptions)
	}
}

// TestMissing: a consumer for which nothing waits, and one of another program, is nobody's trouble.
func TestMissing(t *testing.T) {
	t.Parallel()
	consumer := func(name string, pending uint64, unanswered int) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{Config: stream.Consumer("shop", name, []string{"of." + name}, false), NumPending: pending, NumAckPending: unanswered}
	}
	foreign := &jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{Durable: "foreign"}, NumPending: 1}
	w := &World{
		Subscriptions: []Subscription{{Namespace: "shop", Name: "there"}},
		NATS:          NATS{Consumers: []*jetstream.ConsumerInfo{consumer("there", 1, 0), consumer("waits", 1, 0), consumer("sent", 0, 1), consumer("done", 0, 0), foreign}},
	}
	for subject, want := range map[string]string{"": "shop/sent, shop/waits", "of.waits": "shop/waits", "of.there": ""} {
		if got := Names(w.Missing(subject)); got != want {
			t.Errorf("of subject %q, missing are %q, want %q", subject, got, want)
		}
	}
}
