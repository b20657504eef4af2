// Package pull asks NATS for the messages of a consumer, within a budget of bytes.
package pull

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/budget"
)

const (
	// expiry is how long NATS keeps a request for events; heartbeat is how often NATS says that
	// it still has the request.
	expiry    = time.Minute
	heartbeat = 15 * time.Second
	// pause is how long nothing is asked for after NATS refused a request.
	pause = 250 * time.Millisecond

	// What NATS says about a request, in the header Status.
	statusHeartbeat    = "100"
	statusBadRequest   = "400"
	statusTimeout      = "408"
	statusConflict     = "409"
	statusNoResponders = "503"
	// consumerDeleted is the description of a conflict. The others end by themselves.
	consumerDeleted = "Consumer Deleted"
	// tooLarge is the description of a conflict that ends a request: the next message has more
	// bytes than are left of it.
	tooLarge = "Message Size Exceeds MaxBytes"
	// batchCompleted is the description of a conflict that is none: after the last message of a
	// request with max_bytes. Its messages have been counted as they came.
	batchCompleted = "Batch Completed"

	// smallest and largest are the sizes of messages that are expected. The largest event has 1
	// MiB, and its headers.
	smallest, largest = 2 << 10, 1<<20 + 128<<10
	// unanswered is the header with the number of messages that a request will not get any more.
	unanswered = "Nats-Pending-Messages"
)

// Pull asks NATS for the messages of a consumer, again and again, and passes them on one after the
// other.
//
// It does the work of Consume of package jetstream, which can forget to ask (docs/decisions/1021).
// Here, the request and the count of what NATS was asked for are one step under one lock.
type Pull struct {
	source Source
	most   int
	handle func(m *nats.Msg, free func(n int))
	lost   func(reason string)
	share  *budget.Share
	pace   *Pace
	closed chan struct{}

	subscription *nats.Subscription

	mu sync.Mutex
	// requests are those that NATS has not answered completely, and held are the messages that
	// came, and are not freed.
	requests []request
	held     int
	// reply is the subject to which the last message is acknowledged: it has a consumer's numbers.
	reply string
	// size is what a message is expected to have.
	size int64
	// place is where it waits for NATS to be less busy; queued says that it does, and granted that
	// it has done so for the next request.
	place           place
	queued, granted bool
	// overdue asks again when NATS has said nothing for too long.
	overdue *time.Timer
	// ended says that NATS is asked for nothing more.
	ended bool
}

// request is what NATS was asked for: so many messages are still to come, and so many bytes were
// taken for them. All together have at most so many bytes by what NATS counts.
type request struct {
	messages, all   int
	taken, received int64
}

// Source is a consumer in NATS.
type Source struct {
	Conn             *nats.Conn
	Stream, Consumer string
}

// Size is how many bytes of the share a message has, from when it comes until it is done with.
func Size(m *nats.Msg) int64 { return int64(m.Size()) + budget.PerEvent }

// Start begins to ask for messages. At most as many as most are on the way or not freed. handle
// gets one at a time, does not wait, and lets free be called with how many messages make room for
// others; in the end, with each of them. lost is called if no more message comes, because NATS does
// not know the consumer, or because the connection was closed. The bytes of a message, as Size
// counts them, are taken of the share when handle is called; who has handled it gives them back.
// pace is that of all Pulls of this process.
func Start(source Source, most int, pace *Pace, bytes *budget.Share, handle func(m *nats.Msg, free func(n int)), lost func(reason string)) (*Pull, error) {
	p := &Pull{source: source, most: most, pace: pace, share: bytes, size: smallest, handle: handle, lost: lost, closed: make(chan struct{})}
	p.share.Room(p.room)
	p.place.granted = p.grant
	p.mu.Lock() // until all fields are there
	defer p.mu.Unlock()
	var err error
	if p.subscription, err = source.Conn.Subscribe(source.Conn.NewInbox(), p.receive); err != nil {
		return nil, fmt.Errorf("cannot subscribe to the messages of consumer %s: %w", source.Consumer, err)
	}
	// By itself the client drops what comes while 64 MiB wait to be handled, and NATS sends it
	// again when nobody has acknowledged it for long. What may come is bounded by what was asked
	// for.
	if err := p.subscription.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("cannot subscribe to the messages of consumer %s: %w", source.Consumer, err)
	}
	connected := source.Conn.StatusChanged(nats.CONNECTED)
	finish := sync.OnceFunc(func() {
		source.Conn.RemoveStatusListener(connected)
		close(p.closed)
		if p.end() {
			p.lost("the connection was closed")
		}
	})
	p.subscription.SetClosedHandler(func(string) { finish() })
	p.overdue = time.AfterFunc(2*heartbeat, p.startAgain)
	if !p.subscription.IsValid() { // it was closed before there was a handler
		go finish()
		return p, nil
	}
	go func() { // until the listener is removed
		for range connected {
			p.startAgain()
		}
	}()
	p.ask()
	return p, nil
}

// Stop asks for no more messages. Those that are here are still passed on.
func (p *Pull) Stop() {
	p.end()
	_ = p.subscription.Drain() // fails only if the subscription is closed
}

// Closed is closed when no more message is passed on.
func (p *Pull) Closed() <-chan struct{} { return p.closed }

// end lets NATS be asked for nothing more. It tells whether it was the first call.
func (p *Pull) end() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.ended
	p.ended = true
	p.overdue.Stop()
	p.forget()
	p.share.End()
	p.pace.leave(&p.place)
	return first
}

// receive gets messages, and what NATS says about requests.
func (p *Pull) receive(m *nats.Msg) {
	left, refused, small := 0, false, false
	switch code := m.Header.Get("Status"); {
	case m.Reply != "": // only messages are to be acknowledged
		p.mu.Lock()
		p.account(m)
		p.wait(2 * heartbeat)
		p.mu.Unlock()
		p.handle(m, p.free)
		return
	case code == statusHeartbeat, code == statusConflict && m.Header.Get("Description") == batchCompleted:
	case code == statusBadRequest, code == statusNoResponders, code == statusConflict && m.Header.Get("Description") == consumerDeleted:
		p.lost(fmt.Sprintf("%s %s", code, m.Header.Get("Description")))
		return
	case code == statusTimeout, code == statusConflict && m.Header.Get("Description") == tooLarge:
		var err error
		left, err = strconv.Atoi(m.Header.Get(unanswered))
		refused, small = err != nil, code == statusConflict
	default: // there is another leader, or the server shuts down
		refused = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if refused {
		p.forget()
		p.wait(pause)
		return
	}
	if small {
		p.size = min(2*p.size, largest)
	}
	if left > 0 && len(p.requests) > 0 { // NATS answers the oldest one first
		p.requests[0].messages -= min(left, p.requests[0].messages)
		if p.requests[0].messages == 0 {
			p.complete()
		}
	}
	p.ask()
	p.wait(2 * heartbeat)
}

// account counts a message that came. The caller holds the lock.
func (p *Pull) account(m *nats.Msg) {
	p.held++
	p.reply = m.Reply
	size := Size(m)
	if len(p.requests) == 0 { // of one that was forgotten
		p.share.Force(size)
		return
	}
	r := &p.requests[0]
	r.messages--
	r.received += size
	if over := size - r.taken; over > 0 {
		p.share.Force(over)
	}
	r.taken = max(r.taken-size, 0)
	if r.messages > 0 {
		return
	}
	p.size = min(max(2*(r.received/int64(r.all)-budget.PerEvent), smallest), largest)
	p.complete()
}

// complete ends the oldest request, and gives back what it did not need. The caller holds the lock.
func (p *Pull) complete() {
	p.share.Give(p.requests[0].taken)
	p.requests = p.requests[1:]
}

// forget ends all requests. The caller holds the lock.
func (p *Pull) forget() {
	for len(p.requests) > 0 {
		p.complete()
	}
}

// asked are the messages that NATS was asked for. The caller holds the lock.
func (p *Pull) asked() (n int) {
	for _, r := range p.requests {
		n += r.messages
	}
	return n
}

// free makes room for n other messages.
func (p *Pull) free(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held -= n
	p.ask()
}

// Resize lets so many messages be on the way or not freed.
func (p *Pull) Resize(most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = most
	p.ask()
}

// room is called when there are bytes for another message.
func (p *Pull) room() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ask()
}

// grant is called when NATS is less busy.
func (p *Pull) grant() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queued, p.granted = false, true
	p.ask()
}

// may tells whether NATS may be asked now. Only a Pull that knows of stored messages waits: the
// others get what will come, at once. The caller holds the lock.
func (p *Pull) may() bool {
	if p.granted || p.queued {
		return p.granted
	}
	about, err := (&nats.Msg{Sub: p.subscription, Reply: p.reply}).Metadata()
	p.granted = err != nil || about.NumPending == 0 || p.pace.wait(&p.place, p.most)
	p.queued = !p.granted
	return p.granted
}

// startAgain forgets what NATS was asked for: the connection is another one, or NATS does not know
// the request any more.
func (p *Pull) startAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	p.ask()
	p.wait(2 * heartbeat)
}

// wait begins to wait for NATS to say something. The caller holds the lock.
func (p *Pull) wait(limit time.Duration) {
	if !p.ended {
		p.overdue.Reset(limit)
	}
}

// ask asks for as many messages as there is room for, when half of the room or more is empty: a
// request for each message would cost more. The caller holds the lock.
func (p *Pull) ask() {
	batch := p.most - p.asked() - p.held
	if batch <= p.most/2 || p.ended || !p.may() {
		return
	}
	each := p.size + budget.PerEvent
	taken := p.share.Take(int64(batch) * each)
	for !taken && batch > 1 { // less is better than nothing; without any, the share says when to ask
		batch /= 2
		taken = p.share.Take(int64(batch) * each)
	}
	if !taken {
		return
	}
	content, err := json.Marshal(struct {
		Batch     int           `json:"batch"`
		MaxBytes  int64         `json:"max_bytes,omitempty"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{batch, p.share.Bound(int64(batch) * p.size), expiry, heartbeat})
	if err == nil {
		err = p.source.Conn.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+p.source.Stream+"."+p.source.Consumer, p.subscription.Subject, content)
	}
	if err != nil { // without a connection, the next one asks
		p.share.Give(int64(batch) * each)
		return
	}
	p.granted = false
	p.requests = append(p.requests, request{messages: batch, all: batch, taken: int64(batch) * each})
	p.wait(2 * heartbeat)
}
