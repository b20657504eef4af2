package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestFullVolume fills a volume as the worst mix of consumers does: one takes its events at once,
// and one takes none, so that blocks of which half is alive stay on the disk. On f3299ef the disk
// was full before the stream: publishers got no answer, and nothing could be deleted any more, not
// even what was delivered. Here events are refused at once while there is room to delete; when the
// sink takes its events, others are taken.
func TestFullVolume(t *testing.T) {
	fullVolume(t, func(t *testing.T, size int64) *plane { return startNATSOn(t, size, "10s") })
}

func fullVolume(t *testing.T, start func(t *testing.T, size int64) *plane) {
	const size = 48 << 20
	p := start(t, size)
	ctx := t.Context()
	manager, controller, publisher := js(t, p.as(t, "manager")), js(t, p.as(t, "controller")), js(t, p.as(t, "publisher"))
	config := small()
	config.NATSStreamMaxSize, config.NATSMaxMsgsPerTopic = resource.MustParse("70Mi"), 1_000_000
	config.NATSStreamReplicas = int32(len(p.servers)) //nolint:gosec // 1 or 3
	p.createStream(t, manager, stream.Config(config, "e1", true))
	p.purging(t, controller)
	consumer := func(name string) jetstream.Consumer {
		t.Helper()
		c, err := controller.CreateConsumer(ctx, backend.Stream, stream.Consumer("shop", name, []string{backend.Filter("commerce", name+".v1")}, false))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	dead, live := consumer("dead"), consumer("live")
	taking, err := live.Consume(func(m jetstream.Msg) { _ = m.Ack() })
	if err != nil {
		t.Fatal(err)
	}
	defer taking.Stop()
	publish := func(name string, size int) error {
		limit, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := publisher.Publish(limit, backend.Subject("commerce", name+".v1"), []byte(strings.Repeat("x", size)), jetstream.WithRetryAttempts(0))
		return err
	}
	taken, refused := 0, (*jetstream.APIError)(nil)
	for refused == nil {
		err := publish("dead", 20_000)
		if err == nil {
			taken++
			err = publish("live", 17_000)
		}
		if err != nil && !errors.As(err, &refused) {
			t.Fatalf("after %d events, the volume has %d bytes left, and NATS answers %v, want a refusal within 1s", taken, p.Free(), err)
		}
	}
	if refused.ErrorCode != 10002 || p.Free() < size/32 {
		t.Errorf("after %d events, with %d bytes left, NATS answers %v", taken, p.Free(), refused)
	}
	info, err := manager.AccountInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Of several servers the one that leads JetStream answers, and says how its own volume is.
	if room := stream.Room(info); !room.Refuses && len(p.servers) == 1 || room.Percent < 80 {
		t.Errorf("NATS says of its volume %+v", room)
	}
	if refuses, err := refuses(ctx, p.as(t, "system"), manager); !refuses || err != nil {
		t.Errorf("the server that leads the stream says that it refuses: %v, %v", refuses, err)
	}
	for _, s := range p.servers {
		s.Kill()
	}
	for _, s := range p.servers {
		s.Launch()
	}
	poll.Until(t, limit, "NATS is back", func(ctx context.Context) error {
		_, err := controller.AccountInfo(ctx)
		return err
	})

	var got []string
	for len(got) < taken {
		batch, err := dead.Fetch(500, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err == nil && meta.NumDelivered == 1 {
				got = append(got, fmt.Sprint(meta.Sequence.Stream))
			}
			if err == nil {
				err = m.DoubleAck(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(got) != taken {
		t.Errorf("%d events were delivered, want %d", len(got), taken)
	}
	poll.Until(t, 30*time.Second, "events are taken again", func(context.Context) error { return publish("dead", 20_000) })
	if refuses, err := refuses(ctx, p.as(t, "system"), manager); refuses || err != nil {
		t.Errorf("the server that leads the stream says that it refuses: %v, %v", refuses, err)
	}
	last, err := dead.Next(jetstream.FetchMaxWait(5 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if meta, err := last.Metadata(); err != nil || cmp.Equal(fmt.Sprint(meta.Sequence.Stream), got[len(got)-1]) || meta.NumPending > 0 {
		t.Errorf("the next event is %+v, %v: what was delivered comes again", meta, err)
	}
}

// purging deletes what all have taken, as the controller does, until the end of the test. One
// server does that by itself.
func (p *plane) purging(t *testing.T, controller jetstream.JetStream) {
	t.Helper()
	if len(p.servers) == 1 {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for before := new(stream.Look); t.Context().Err() == nil; time.Sleep(time.Second) {
			if s, err := controller.Stream(t.Context(), backend.Stream); err == nil {
				_, _, _ = stream.Purge{Before: before}.Do(t.Context(), s) // servers are full, or killed
			}
		}
	}()
	t.Cleanup(func() { <-ended })
}

// refuses asks the server that leads the stream whether it refuses events.
func refuses(ctx context.Context, system *nats.Conn, js jetstream.JetStream) (bool, error) {
	s, err := js.Stream(ctx, backend.Stream)
	if err != nil {
		return false, err
	}
	leader := system.ConnectedServerName() // one server leads nothing
	if cluster := s.CachedInfo().Cluster; cluster != nil {
		leader = cluster.Leader
	}
	return stream.RefusesAt(ctx, system, leader)
}

// TestRoomAgain: on a full volume, an enlargement and the deletion of a Subscription each make NATS
// take events within 30 seconds, without a restart. Nothing that was delivered comes again but what
// was in flight. On f3299ef neither helped: a full volume could delete nothing.
func TestRoomAgain(t *testing.T) {
	const size = 32 << 20
	r := newRigOn(t, startNATSOn(t, size, "10s"), true)
	r.controller("a")
	r.sinks.Answer("dead", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	for _, name := range []string{"dead", "live"} {
		r.subscribe(name, name+".v1", "")
		r.await(name, "ready", ready)
	}
	sent := map[string][]string{}
	publish := func(name string, size int) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		id := fmt.Sprintf("%s%05d", name, len(sent[name]))
		_, err := r.publisher.PublishMsg(ctx, event(name+".v1", id, strings.Repeat("x", size)), jetstream.WithRetryAttempts(0))
		if err == nil {
			sent[name] = append(sent[name], id)
		}
		return err
	}
	fill := func() {
		t.Helper()
		refused := (*jetstream.APIError)(nil)
		for refused == nil {
			err := publish("dead", 20_000)
			if err == nil {
				err = publish("live", 17_000)
			}
			if err != nil && (!errors.As(err, &refused) || refused.ErrorCode != 10002) {
				t.Fatalf("after %d events, with %d bytes left: %v", len(sent["dead"]), r.Free(), err)
			}
		}
	}
	again := func(what string) {
		t.Helper()
		poll.Until(t, 30*time.Second, "events are taken after "+what, func(context.Context) error { return publish("live", 17_000) })
	}
	fill()
	r.Remount(fmt.Sprintf("size=%d", size+size/2))
	again("the volume was enlarged")
	fill()
	r.delete("dead")
	again("the Subscription was deleted")

	r.sinks.Await(t, "live", limit, sent["live"]...)
	times := map[string]int{}
	for _, id := range r.sinks.IDs("live") {
		times[id]++
	}
	for id, n := range times {
		if n > 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
	}
	r.subscribe("later", "dead.v1", "")
	r.await("later", "ready", ready)
	if err := publish("dead", 100); err != nil {
		t.Fatal(err)
	}
	last := sent["dead"][len(sent["dead"])-1]
	r.sinks.Await(t, "later", limit, last)
	if got := r.sinks.IDs("later"); len(got) != 1 {
		t.Errorf("%d events came, want %s alone: what the deleted Subscription had is still there", len(got), last)
	}
}

// TestAVolumeThatCannotBeWritten: no file can be created any more, while there is room. Events are
// refused within a second, the server is not killed for that, and says why. When files can be
// created again, it ends by itself, because a stream whose write has failed would never store
// again. Then the events are there that were taken. Before, the server said of itself that all is
// well, and publishers got no answer.
func TestAVolumeThatCannotBeWritten(t *testing.T) {
	const size = 48 << 20
	p := startNATSOn(t, size, "10s")
	ctx := t.Context()
	manager, publisher := js(t, p.as(t, "manager")), js(t, p.as(t, "publisher"))
	config := small()
	config.NATSMaxMsgsPerTopic = 1_000
	if _, err := manager.CreateStream(ctx, stream.Config(config, "e1", true)); err != nil {
		t.Fatal(err)
	}
	consumer, err := js(t, p.as(t, "controller")).CreateConsumer(ctx, backend.Stream, stream.Consumer("shop", "orders", []string{backend.Filter("commerce", "a.b")}, false))
	if err != nil {
		t.Fatal(err)
	}
	publish := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := publisher.Publish(ctx, backend.Subject("commerce", "a.b"), []byte("1"), jetstream.WithRetryAttempts(0))
		return err
	}
	if err := publish(ctx); err != nil {
		t.Fatal(err)
	}
	p.Remount(fmt.Sprintf("size=%d,nr_inodes=%d", size, p.Inodes()))
	poll.Until(t, time.Second, "events are refused", func(ctx context.Context) error {
		refused := (*jetstream.APIError)(nil)
		switch err := publish(ctx); {
		case errors.As(err, &refused) && refused.ErrorCode == 10002:
			return nil
		case err != nil:
			return poll.Stop(err)
		}
		return errors.New("NATS takes events")
	})
	info, err := manager.AccountInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if room := stream.Room(info); !room.Refuses || !room.NotWritable {
		t.Errorf("NATS says of its volume %+v", room)
	}
	p.Remount(fmt.Sprintf("size=%d,nr_inodes=%d", size, 1<<20))
	select {
	case <-p.Exited():
	case <-time.After(limit):
		t.Fatal("the server does not start again")
	}
	p.Launch()
	poll.Until(t, 30*time.Second, "events are taken again", publish)
	poll.Until(t, 30*time.Second, "the event comes that was taken before", func(context.Context) error {
		first, err := consumer.Next(jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return err // it connects again
		}
		if meta, err := first.Metadata(); err != nil || meta.Sequence.Stream != 1 {
			return poll.Stop(fmt.Errorf("the first event is %+v, %w", meta, err))
		}
		return nil
	})
}

// TestADiskThatFails: the file system of the volume becomes read-only, as it does at an error of
// the device. Events are refused within a second, and NATS says why. When the disk was repaired,
// each event is there that was taken: sync is Always.
func TestADiskThatFails(t *testing.T) {
	p := startPlane(t, 1, "always", func(config string, tls map[string][]byte) []*natsserver.Server {
		return []*natsserver.Server{natsserver.StartOnDisk(t, 64<<20, config, tls)}
	})
	ctx := t.Context()
	manager, publisher := js(t, p.as(t, "manager")), js(t, p.as(t, "publisher"))
	config := small()
	config.NATSMaxMsgsPerTopic = 1_000
	p.createStream(t, manager, stream.Config(config, "e1", true))
	consumer, err := js(t, p.as(t, "controller")).CreateConsumer(ctx, backend.Stream, stream.Consumer("shop", "orders", []string{backend.Filter("commerce", "a.b")}, false))
	if err != nil {
		t.Fatal(err)
	}
	var taken []string
	publish := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		text := fmt.Sprint(len(taken))
		_, err := publisher.Publish(ctx, backend.Subject("commerce", "a.b"), []byte(text), jetstream.WithRetryAttempts(0))
		if err == nil {
			taken = append(taken, text)
		}
		return err
	}
	for range 20 {
		if err := publish(ctx); err != nil {
			t.Fatal(err)
		}
	}
	p.FailDisk()
	poll.Until(t, 2*time.Second, "events are refused", func(ctx context.Context) error {
		refused := (*jetstream.APIError)(nil)
		if err := publish(ctx); !errors.As(err, &refused) || refused.ErrorCode != 10002 {
			return fmt.Errorf("NATS answers %w", err)
		}
		return nil
	})
	info, err := manager.AccountInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if room := stream.Room(info); !room.Refuses || !room.NotWritable {
		t.Errorf("NATS says of its volume %+v", room)
	}
	p.Kill()
	p.RepairDisk()
	p.Launch()
	poll.Until(t, 30*time.Second, "events are taken again", publish)
	var got []string
	poll.Until(t, 30*time.Second, "each event comes that was taken", func(context.Context) error {
		next, err := consumer.Next(jetstream.FetchMaxWait(time.Second))
		if err == nil {
			got = append(got, string(next.Data()))
			err = next.Ack()
		}
		if err == nil && len(got) < len(taken) {
			err = fmt.Errorf("%d of %d", len(got), len(taken))
		}
		return err
	})
	if diff := cmp.Diff(taken, got); diff != "" {
		t.Errorf("events (-taken +delivered):\n%s", diff)
	}
}
