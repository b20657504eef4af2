package pull

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/budget"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestMostIsLessThanNATSSends: nats-server closes a connection for which more than max_pending
// waits. With its own 64 MiB, a Subscription of large events lost the connection of all, and what
// was on the way came 40 seconds later.
func TestMostIsLessThanNATSSends(t *testing.T) {
	raw, err := os.ReadFile("../../../charts/eventing/charts/nats/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct{ MaxPayload, MaxPending int64 }
	if err := yaml.Unmarshal(raw, &values); err != nil {
		t.Fatal(err)
	}
	if values.MaxPayload == 0 || values.MaxPending < budget.Most+2*values.MaxPayload {
		t.Errorf("max_pending is %d, a controller may have asked for %d", values.MaxPending, budget.Most)
	}
}

// TestPullDropsNothing: a hundred large messages come while this process has no time to handle
// them, and each is handled the first time it comes. Before, the client dropped what was beyond 64
// MiB, 35 of them.
func TestPullDropsNothing(t *testing.T) {
	const messages, size = 100, 1000 << 10
	server := natsserver.Start(t, fmt.Sprintf("max_pending: %d\njetstream { store_dir: /data }", 256<<20), nil)
	conn := connectTo(t, server)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(t.Context(), "s", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	for range messages {
		if _, err := js.Publish(t.Context(), "a", make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	busy, handled := make(chan struct{}), make(chan struct{}, messages)
	p, err := Start(Source{conn, "s", "c"}, messages, NewPace(), budget.NewShare(nil, nil), func(_ *nats.Msg, free func(int)) {
		<-busy
		free(1)
		handled <- struct{}{}
	}, func(reason string) { t.Errorf("lost: %s", reason) })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	poll.Until(t, 20*time.Second, "NATS has sent all", func(ctx context.Context) error {
		c, err := js.Consumer(ctx, "s", "c")
		if err == nil && c.CachedInfo().NumPending > 0 {
			err = fmt.Errorf("%d wait", c.CachedInfo().NumPending)
		}
		return err
	})
	time.Sleep(time.Second) // what was sent comes
	close(busy)
	for range messages {
		next(t, handled)
	}
	if n, err := p.subscription.Dropped(); err != nil || n != 0 || conn.Reconnects != 0 {
		t.Errorf("%d messages were dropped, %v, and the connection was closed %d times", n, err, conn.Reconnects)
	}
}
