package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/values"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// plane is NATS with the configuration of the chart, and its users.
type plane struct {
	*natsserver.Server // the first of servers, which clients are told
	servers            []*natsserver.Server
	seeds              map[string][]byte
	ca                 natsutil.Pair
}

// startNATS starts a server as the operator would configure it: one server, storage in files.
func startNATS(t testing.TB) *plane {
	t.Helper()
	return startNATSWith(t, "10s")
}

// startNATSWith is startNATS with a time after which what was stored is written to the disk;
// "always" is before it is acknowledged.
func startNATSWith(t testing.TB, sync string) *plane {
	t.Helper()
	return startNATSOn(t, 0, sync)
}

// startNATSOn is startNATSWith on a volume of a size, as in natsserver.StartOn.
func startNATSOn(t testing.TB, size int64, sync string) *plane {
	t.Helper()
	return startServers(t, 1, size, sync)
}

// startServers is startNATSOn with n servers, which hold a copy of each event each.
func startServers(t testing.TB, n int, size int64, sync string) *plane {
	t.Helper()
	return startPlane(t, n, sync, func(config string, tls map[string][]byte) []*natsserver.Server {
		if n == 1 {
			return []*natsserver.Server{natsserver.StartOn(t, size, config, tls)}
		}
		return natsserver.StartCluster(t, n, size, config, tls)
	})
}

func startPlane(t testing.TB, n int, sync string, start func(config string, tls map[string][]byte) []*natsserver.Server) *plane {
	t.Helper()
	return startPlaneWith(t, map[string]any{"replicas": int64(n), "syncInterval": sync}, start)
}

// startPlaneWith is startPlane with values of the chart.
func startPlaneWith(t testing.TB, values map[string]any, start func(config string, tls map[string][]byte) []*natsserver.Server) *plane {
	t.Helper()
	p := &plane{seeds: map[string][]byte{}}
	keys := map[string]any{}
	for _, user := range []string{"system", "manager", "controller", "publisher"} {
		seed, err := natsutil.NewUser()
		if err != nil {
			t.Fatal(err)
		}
		if keys[user], err = natsutil.PublicKey(seed); err != nil {
			t.Fatal(err)
		}
		p.seeds[user] = seed
	}
	var err error
	if p.ca, err = natsutil.NewAuthority("test", time.Now()); err != nil {
		t.Fatal(err)
	}
	certificate, err := p.ca.Issue([]string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	values["users"] = keys
	objects, err := loaded(t).Render(chart.Release{Name: "eventing", Namespace: "kyma-system"}, map[string]any{"nats": values})
	if err != nil {
		t.Fatal(err)
	}
	config := ""
	for _, u := range objects {
		if u.GetKind() == "ConfigMap" {
			config, _, _ = unstructured.NestedString(u.Object, "data", "nats.conf")
		}
	}
	p.servers = start(config, map[string][]byte{"tls.crt": certificate.Certificate, "tls.key": certificate.Key, "ca.crt": p.ca.Certificate})
	p.Server = p.servers[0]
	return p
}

// createStream creates the stream. Servers that have just started do not know each other yet, and
// what asks them gets no answer.
func (p *plane) createStream(t testing.TB, manager jetstream.JetStream, config jetstream.StreamConfig) {
	t.Helper()
	poll.Until(t, limit, "the stream is created", func(ctx context.Context) error {
		_, err := manager.CreateStream(ctx, config)
		if err != nil && len(p.servers) == 1 {
			return poll.Stop(err)
		}
		return err
	})
}

// connect begins to connect as a user. The certificate names localhost.
func (p *plane) connect(user string, more ...nats.Option) (*nats.Conn, error) {
	return natsutil.Connect(strings.Replace(p.URL, "127.0.0.1", "localhost", 1), natsutil.Account{Name: user, Seed: p.seeds[user], CA: p.ca.Certificate, Inbox: "_INBOX." + user}, more...)
}

// as is connected as a user.
func (p *plane) as(t testing.TB, user string, more ...nats.Option) *nats.Conn {
	t.Helper()
	c, err := p.connect(user, more...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.FlushWithContext(ctx); err != nil {
		t.Fatalf("%s cannot connect: %v, %v", user, err, c.LastError())
	}
	return c
}

func js(t testing.TB, c *nats.Conn) jetstream.JetStream {
	t.Helper()
	j, err := jetstream.New(c, jetstream.WithDefaultTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// small is a stream of 1 MiB with two messages of each type.
func small() operatorv1alpha1.BackendConfig {
	return operatorv1alpha1.BackendConfig{
		NATSStreamStorageType: operatorv1alpha1.StorageFile, NATSStreamReplicas: 1, NATSStreamMaxSize: resource.MustParse("1Mi"), NATSMaxMsgsPerTopic: 2,
	}
}

// TestUsers: each user may do what its program does, and is refused everything else.
func TestUsers(t *testing.T) {
	p := startNATS(t)
	manager, controller, publisher := js(t, p.as(t, "manager")), js(t, p.as(t, "controller")), js(t, p.as(t, "publisher"))
	ctx := t.Context()
	if _, err := manager.CreateStream(ctx, stream.Config(small(), "e1", true)); err != nil {
		t.Fatal(err)
	}
	consumer, err := controller.CreateConsumer(ctx, backend.Stream, stream.Consumer("shop", "orders", []string{"kyma.commerce.order.created.v1"}, false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := publisher.Publish(ctx, backend.Subject("commerce", "order.created.v1"), []byte("1"), jetstream.WithMsgID(backend.MessageID("commerce", "1", "order.created.v1", []byte("1")))); err != nil {
		t.Fatal(err)
	}
	message, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := message.DoubleAck(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := publisher.Stream(ctx, backend.Stream); err != nil {
		t.Errorf("the publisher cannot see whether the stream is open: %v", err)
	}
	if _, err := controller.Publish(ctx, backend.RetrySubject("mine"), []byte("1")); err != nil {
		t.Errorf("the controller cannot store an event again: %v", err)
	}
	// A request that is refused is never answered; the server says so asynchronously.
	for _, tc := range []struct {
		user, subject string
	}{
		{"publisher", "$JS.API.STREAM.DELETE.sap"},
		{"publisher", "$JS.API.CONSUMER.CREATE.sap.mine"},
		{"publisher", "other.subject"},
		{"publisher", backend.RetrySubject("mine")},
		{"controller", "$JS.API.STREAM.DELETE.sap"},
		{"controller", "$JS.API.STREAM.UPDATE.sap"},
		{"controller", "$JS.API.STREAM.PURGE.other"},
		{"publisher", "$JS.API.STREAM.PURGE.sap"},
		{"controller", "kyma.commerce.order.created.v1"},
		{"controller", "$JS.API.CONSUMER.CREATE.other.mine"},
		{"controller", backend.Barrier},
		{"publisher", backend.Barrier},
		{"manager", "kyma.commerce.order.created.v1"},
		{"manager", "$SYS.REQ.SERVER.PING"},
		{"system", "$JS.API.STREAM.DELETE.sap"},
	} {
		refused := make(chan error, 8)
		c := p.as(t, tc.user, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		if err := c.Publish(tc.subject, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s may not publish to %s, but the error is %v", tc.user, tc.subject, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s may publish to %s", tc.user, tc.subject)
		}
	}
	for _, user := range []string{"manager", "controller", "publisher", "system"} {
		refused := make(chan error, 8)
		c := p.as(t, user, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		for _, subject := range []string{"_INBOX.>", "kyma.>", ">"} {
			if _, err := c.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-refused:
				if !errors.Is(err, nats.ErrPermissionViolation) {
					t.Errorf("%s may not subscribe to %s, but the error is %v", user, subject, err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s may subscribe to %s, and reads what is for others", user, subject)
			}
		}
	}
	stranger, err := natsutil.NewUser()
	if err != nil {
		t.Fatal(err)
	}
	p.seeds["stranger"] = stranger
	errs := make(chan error, 8)
	c, err := p.connect("stranger", nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { errs <- err }))
	if err == nil {
		defer c.Close()
		select {
		case err = <-errs:
		case <-time.After(10 * time.Second):
		}
	}
	if !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("an unknown user is answered %v", err)
	}
}

// TestStreamFacts: what the settings of the stream promise, tried on the real server.
func TestStreamFacts(t *testing.T) {
	p := startNATS(t)
	ctx := t.Context()
	manager, controller, publisher := js(t, p.as(t, "manager")), js(t, p.as(t, "controller")), js(t, p.as(t, "publisher"))
	publish := func(eventType, id string) (*jetstream.PubAck, error) {
		return publisher.Publish(ctx, backend.Subject("commerce", eventType), []byte(id), jetstream.WithMsgID(backend.MessageID("commerce", id, eventType, []byte(id))), jetstream.WithRetryAttempts(0))
	}
	messages := func() uint64 {
		s, err := manager.Stream(ctx, backend.Stream)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.Msgs
	}
	closed, open := stream.Config(small(), "e1", false), stream.Config(small(), "e1", true)
	created, err := manager.CreateStream(ctx, closed)
	if err != nil {
		t.Fatal(err)
	}
	// Fields that the server adds do not count as a difference, or the stream would be written
	// again for ever.
	is := created.CachedInfo().Config
	if stream.Differs(is, closed) || !stream.Differs(is, open) || stream.Open(is) || stream.Epoch(is) != "e1" {
		t.Errorf("the stream that was created closed is taken for another one: %+v", is)
	}
	// The stream opens when its consumers are there, so they come first.
	if _, err := controller.CreateConsumer(ctx, backend.Stream, stream.Consumer("shop", "orders", []string{backend.Filter("commerce", "a.b"), backend.Filter("commerce", "c.d")}, false)); err != nil {
		t.Fatalf("a consumer of a closed stream: %v", err)
	}
	if _, err := publish("a.b", "0"); !errors.Is(err, jetstream.ErrNoStreamResponse) {
		t.Errorf("a closed stream takes an event: %v", err)
	}
	if _, err := manager.UpdateStream(ctx, open); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2"} {
		if _, err := publish("a.b", id); err != nil {
			t.Fatal(err)
		}
	}
	var refused *jetstream.APIError
	if _, err := publish("a.b", "3"); !errors.As(err, &refused) || refused.Code != 503 {
		t.Errorf("more events of one type than allowed: %v, want a refusal with 503", err)
	}
	if n := messages(); n != 2 {
		t.Errorf("%d events are stored, want 2: NATS deleted events that nobody got", n)
	}
	if ack, err := publish("a.b", "2"); err != nil || !ack.Duplicate {
		t.Errorf("an event that is published again: %+v, %v", ack, err)
	}
	if _, err := publish("nobody.listens", "4"); err != nil {
		t.Errorf("an event that nobody subscribed to: %v", err)
	}
	if n := messages(); n != 2 {
		t.Errorf("%d events are stored, want 2: one that nobody subscribed to is not stored", n)
	}
	// Full.
	big := strings.Repeat("x", 600<<10)
	if _, err := publisher.Publish(ctx, backend.Subject("commerce", "c.d"), []byte(big), jetstream.WithRetryAttempts(0)); err != nil {
		t.Fatal(err)
	}
	refused = nil
	if _, err := publisher.Publish(ctx, backend.Subject("commerce", "c.d"), []byte(big), jetstream.WithRetryAttempts(0)); !errors.As(err, &refused) || refused.ErrorCode != 10077 {
		t.Errorf("a full stream: %v, want error 10077", err)
	}
	// Closed again: what is stored is delivered, nothing new is taken, and what was published is
	// still known.
	if _, err := manager.UpdateStream(ctx, closed); err != nil {
		t.Fatal(err)
	}
	if _, err := publish("a.b", "5"); !errors.Is(err, jetstream.ErrNoStreamResponse) {
		t.Errorf("a stream that was closed takes an event: %v", err)
	}
	consumer, err := controller.Consumer(ctx, backend.Stream, backend.ConsumerName("shop", "orders"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		message, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatalf("a closed stream does not deliver: %v", err)
		}
		if err := message.DoubleAck(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := messages(); n != 0 {
		t.Errorf("%d events are stored after all were delivered", n)
	}
	// The operator's barrier has a sequence, and is not kept.
	if ack, err := manager.Publish(ctx, backend.Barrier, nil); err != nil || ack.Sequence == 0 {
		t.Errorf("the barrier: %+v, %v", ack, err)
	}
	if n := messages(); n != 0 {
		t.Errorf("%d messages are stored after the barrier", n)
	}
	if _, err := manager.UpdateStream(ctx, open); err != nil {
		t.Fatal(err)
	}
	if ack, err := publish("a.b", "1"); err != nil || !ack.Duplicate {
		t.Errorf("an event that was delivered, and is published again after the stream was closed and opened: %+v, %v", ack, err)
	}
	// The storage cannot change (10052). The volume's limits of the account, which come a moment
	// after the start, are asked first: none is in memory (10122).
	memory := small()
	memory.NATSStreamStorageType = operatorv1alpha1.StorageMemory
	refused = nil
	if _, err := manager.UpdateStream(ctx, stream.Config(memory, "e1", true)); !errors.As(err, &refused) || refused.ErrorCode != 10122 && refused.ErrorCode != 10052 {
		t.Errorf("another storage: %v, want error 10122 or 10052", err)
	}
}

// TestStorageInMemory: a server with the values of the operator takes streams and events in memory,
// however full the disk is.
func TestStorageInMemory(t *testing.T) {
	config := small()
	config.NATSStreamStorageType = operatorv1alpha1.StorageMemory
	of, err := values.NATS(config, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := startPlaneWith(t, of, func(config string, tls map[string][]byte) []*natsserver.Server {
		return []*natsserver.Server{natsserver.Start(t, config, tls)}
	})
	time.Sleep(500 * time.Millisecond) // the server looks at its volume each 50 ms
	manager := js(t, p.as(t, "manager"))
	for _, want := range []jetstream.StreamConfig{stream.Wanted(config, nil, "e1", true), stream.WantedLetters(config, nil)} {
		if _, err := manager.CreateStream(t.Context(), want); err != nil {
			t.Fatalf("stream %s: %v", want.Name, err)
		}
	}
	if _, err := js(t, p.as(t, "publisher")).Publish(t.Context(), backend.Subject("commerce", "a.b"), []byte("1")); err != nil {
		t.Error(err)
	}
	info, err := manager.AccountInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.Room(info); got != (stream.Volume{}) {
		t.Errorf("the server says of its volume: %+v", got)
	}
}

// TestOrder: one event at a time, and the next only after the last was taken.
func TestOrder(t *testing.T) {
	p := startNATS(t)
	ctx := t.Context()
	manager, controller, publisher := js(t, p.as(t, "manager")), js(t, p.as(t, "controller")), js(t, p.as(t, "publisher"))
	config := small()
	config.NATSMaxMsgsPerTopic = 1000
	if _, err := manager.CreateStream(ctx, stream.Config(config, "e1", true)); err != nil {
		t.Fatal(err)
	}
	consumer, err := controller.CreateConsumer(ctx, backend.Stream, stream.Consumer("shop", "orders", []string{backend.Filter("", "a.b")}, true))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := publisher.Publish(ctx, backend.Subject("commerce", "a.b"), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for len(got) < 10 {
		message, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(message.Data()))
		if len(got)%2 == 1 {
			err = message.NakWithDelay(50 * time.Millisecond)
		} else {
			err = message.DoubleAck(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := "0 0 1 1 2 2 3 3 4 4"; strings.Join(got, " ") != want {
		t.Errorf("each event is refused once: got %v, want %s", got, want)
	}
}

// TestManyConsumers: the configuration of the chart allows more Subscriptions than the 1,000
// consumers that nats-server takes of a stream by default.
func TestManyConsumers(t *testing.T) {
	p := startNATS(t)
	manager := js(t, p.as(t, "manager"))
	config := small()
	p.createStream(t, manager, stream.Config(config, "e1", false))
	for n := range 1001 {
		name := fmt.Sprint("s", n)
		if _, err := manager.CreateConsumer(t.Context(), backend.Stream, stream.Consumer("shop", name, []string{"kyma.x.a." + name}, false)); err != nil {
			t.Fatalf("consumer %d: %v", n+1, err)
		}
	}
}
