package manager

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// barrierDelay is how long a stream has been seen closed before the barrier is published. By then,
// a server that had found the stream for an event before the close has put it into the queue.
const barrierDelay = time.Second

// barrierTimeout is less than requestTimeout: what a look reads after it has the rest.
const barrierTimeout = 3 * time.Second

// barrier is the message that is stored last in a closed stream with one server. That server puts
// what is published to a stream into one queue and stores it in this order (nats-server,
// stream.internalLoop). So whatever it has taken before is stored before the barrier.
type barrier struct {
	// stream and closed are those of the stream, seen is when it was first read closed.
	stream, closed, seen time.Time
	// last is the sequence of the barrier; 0 before it is stored.
	last uint64
	// failed: NATS did not say that it is stored. It is not published again: each one could be
	// stored late, and the watch of a stream that stays empty would begin again.
	failed bool
}

// of tells whether it is of this stream since it was closed.
func (b barrier) of(info *jetstream.StreamInfo) bool {
	closed, marked := stream.ClosedAt(info.Config)
	return marked && info.Config.Replicas <= 1 && b.stream.Equal(info.Created) && b.closed.Equal(closed)
}

// steady is since when something was so of a stream that stored nothing meanwhile.
type steady struct {
	stream time.Time
	last   uint64
	since  time.Time
}

// reading is when a request began and ended. What it says is of a time in between.
type reading struct{ began, ended time.Time }

// lasts notes that something is so, or not, and returns for how long it was at least. Two reads
// with one last sequence prove that nothing was stored in between.
func (s *steady) lasts(is bool, info *jetstream.StreamInfo, at reading) time.Duration {
	switch {
	case !is:
		*s = steady{}
		return 0
	case s.since.IsZero() || !s.stream.Equal(info.Created) || s.last != info.State.LastSeq:
		*s = steady{stream: info.Created, last: info.State.LastSeq, since: at.ended}
	}
	return max(0, at.began.Sub(s.since))
}

// wantsBarrier tells whether the barrier is to be published: to an empty stream, and again after
// something came behind it.
func (c *connection) wantsBarrier(info *jetstream.StreamInfo, at reading) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	closed, marked := stream.ClosedAt(info.Config)
	if !marked || info.Config.Replicas > 1 {
		return false
	}
	if !c.barrier.of(info) {
		c.barrier = barrier{stream: info.Created, closed: closed, seen: at.ended}
	}
	return info.State.Msgs == 0 && !c.barrier.failed && (c.barrier.last == 0 || c.barrier.last != info.State.LastSeq) && at.began.Sub(c.barrier.seen) >= barrierDelay
}

// raise publishes the barrier, and reads the stream after that. The stream keeps nothing of it: no
// consumer waits for its subject.
func (c *connection) raise(ctx context.Context, js jetstream.JetStream) (*jetstream.StreamInfo, error) {
	limit, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	ack, err := js.Publish(limit, backend.Barrier, nil, jetstream.WithExpectStream(backend.Stream), jetstream.WithRetryAttempts(0))
	c.mu.Lock()
	if c.barrier.failed = err != nil; err == nil {
		c.barrier.last = ack.Sequence
	}
	c.mu.Unlock()
	s, err := js.Stream(ctx, backend.Stream)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// behindBarrier tells whether the barrier is the last that a closed, empty stream has stored.
func (c *connection) behindBarrier(info *jetstream.StreamInfo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.barrier.of(info) && c.barrier.last != 0 && c.barrier.last == info.State.LastSeq && info.State.Msgs == 0
}

// quiet tells whether a closed stream was empty for long enough.
func (c *connection) quiet(info *jetstream.StreamInfo, at reading, d *decide.Rules) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	closed, marked := stream.ClosedAt(info.Config)
	empty := info.State.Msgs == 0 && current(info)
	if empty && !marked && !stream.Open(info.Config) && info.State.LastSeq == 0 {
		return true // it was never open
	}
	lasts := c.empty.lasts(empty && marked && at.began.Sub(closed) >= d.DrainDelay, info, at)
	return lasts > 0 && lasts >= d.DrainWatch
}

// dangling tells whether a closed stream has held events for long that no consumer has to deliver.
// The consumers are read after the stream, so one look alone proves nothing.
func (c *connection) dangling(info *jetstream.StreamInfo, consumers []*jetstream.ConsumerInfo, at reading) bool {
	const limit = 10 * time.Minute
	c.mu.Lock()
	defer c.mu.Unlock()
	busy := slices.ContainsFunc(consumers, func(c *jetstream.ConsumerInfo) bool { return c.NumPending > 0 || c.NumAckPending > 0 })
	return c.stuck.lasts(!stream.Open(info.Config) && info.State.Msgs > 0 && current(info) && !busy, info, at) >= limit
}

// current tells whether each copy of the stream is up to date: a leader that was cut off answers
// with an old state.
func current(info *jetstream.StreamInfo) bool {
	return info.Cluster == nil || info.Cluster.Leader != "" && len(behind(info)) == 0
}

// behind are the servers whose copy of the stream is not up to date, sorted.
func behind(info *jetstream.StreamInfo) (servers []string) {
	if info.Cluster == nil {
		return nil
	}
	for _, peer := range info.Cluster.Replicas {
		if !peer.Current {
			servers = append(servers, peer.Name)
		}
	}
	slices.Sort(servers)
	return servers
}
