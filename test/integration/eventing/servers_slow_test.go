//go:build slow

package eventing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// askMonitor asks the monitor of a server. into is nil for an answer that does not matter.
func askMonitor(ctx context.Context, s *natsserver.Server, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Monitor+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// healthy waits until a server says that it has a copy of all that it is to have.
func healthy(t *testing.T, s *natsserver.Server) {
	t.Helper()
	poll.Until(t, time.Minute, s.Name()+" is healthy", func(ctx context.Context) error { return askMonitor(ctx, s, "/healthz", nil) })
}

// copyOf is the stream as one server has it.
func copyOf(t *testing.T, s *natsserver.Server) server.StreamDetail {
	t.Helper()
	var of server.JSInfo
	if err := askMonitor(t.Context(), s, "/jsz?accounts=true&streams=true", &of); err != nil {
		t.Fatal(err)
	}
	for _, account := range of.AccountDetails {
		for _, detail := range account.Streams {
			if detail.Name == backend.Stream {
				return detail
			}
		}
	}
	t.Fatalf("%s has no stream", s.Name())
	return server.StreamDetail{}
}

// TestServerThatWasAway: one of three servers is away for a moment. Meanwhile Subscriptions are
// created, and events are stored for them that wait. Once the server is healthy again, its copy has
// them: it may lead from then on. With InterestPolicy, it has none of them, for ever.
func TestServerThatWasAway(t *testing.T) {
	p := startServers(t, 3, 0, "10s")
	away := p.servers[0]
	p.Server = p.servers[1]
	config := small()
	config.NATSMaxMsgsPerTopic, config.NATSStreamReplicas = 100_000, 3
	config.NATSStreamMaxSize.Set(100 << 20)
	// Earlier versions kept only what somebody waited for, with several servers, too.
	want := stream.Config(config, "e1", true)
	former := want
	former.Retention = jetstream.InterestPolicy
	manager := js(t, p.as(t, "manager"))
	p.createStream(t, manager, former)
	if _, err := manager.UpdateStream(t.Context(), want); err != nil || !stream.Differs(former, want) {
		t.Fatalf("the stream of an earlier version cannot be changed: %v", err)
	}
	controller, publisher := js(t, p.as(t, "controller")), js(t, p.as(t, "publisher"))
	healthy(t, away)
	away.Kill()
	const consumers = 30
	eventType := func(n int) string { return fmt.Sprintf("type%d.v1", n%consumers) }
	var creations sync.WaitGroup
	for n := range consumers {
		// It takes seconds while a server is away.
		creations.Go(func() {
			want := stream.Consumer("shop", fmt.Sprint("n", n), []string{backend.Filter("", eventType(n))}, false)
			poll.Until(t, limit, "the consumer is created", func(ctx context.Context) error {
				_, err := controller.CreateOrUpdateConsumer(ctx, backend.Stream, want)
				return err
			})
		})
	}
	creations.Wait()
	stored := 0
	publish := func() {
		t.Helper()
		poll.Until(t, limit, "the event is accepted", func(ctx context.Context) error {
			_, err := publisher.Publish(ctx, backend.Subject("commerce", eventType(stored)), []byte("{}"), jetstream.WithMsgID(fmt.Sprint(stored)))
			return err
		})
		stored++
	}
	for range 10 * consumers {
		publish()
	}
	away.Launch()
	back := make(chan struct{})
	go func() {
		defer close(back)
		healthy(t, away)
	}()
	for isBack := false; !isBack; publish() {
		select {
		case <-back:
			isBack = true
		default:
		}
	}
	for _, s := range p.servers {
		poll.Until(t, limit, s.Name()+" has all that was stored", func(context.Context) error {
			if is := copyOf(t, s); is.State.LastSeq < uint64(stored) { //nolint:gosec // some thousand
				return fmt.Errorf("it has %d of %d", is.State.LastSeq, stored)
			}
			return nil
		})
		if is := copyOf(t, s); is.State.Msgs != uint64(stored) { //nolint:gosec // some thousand
			t.Errorf("%s has %d of %d events", s.Name(), is.State.Msgs, stored)
		}
	}
}

// TestNothingIsLeftOfThree is TestNothingIsLeft with three servers.
func TestNothingIsLeftOfThree(t *testing.T) {
	nothingIsLeft(t, newRigOn(t, startServers(t, 3, 0, "10s"), true))
}

// TestFullVolumesOfThree is TestFullVolume with three servers, each with a volume of its own.
func TestFullVolumesOfThree(t *testing.T) {
	fullVolume(t, func(t *testing.T, size int64) *plane { return startServers(t, 3, size, "10s") })
}
