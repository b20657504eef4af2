package delivery

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// pullExpiry is how long NATS keeps a request for events; heartbeat is how often NATS says that it still has the request.
	pullExpiry = time.Minute
	heartbeat  = 15 * time.Second
	// pullAgain is the pause after NATS refused a request.
	pullAgain = 250 * time.Millisecond

	// What NATS says about a request, in the header Status.
	statusHeartbeat    = "100"
	statusBadRequest   = "400"
	statusTimeout      = "408"
	statusConflict     = "409"
	statusNoResponders = "503"
	// consumerDeleted is the description of a conflict. The others end by themselves.
	consumerDeleted = "Consumer Deleted"
	// unanswered is the header with the number of messages that a request will not get any more.
	unanswered = "Nats-Pending-Messages"
)

// Source is a consumer in NATS.
type Source struct {
	Conn             *nats.Conn
	Stream, Consumer string
}

// pull asks NATS for the messages of a consumer, again and again, and passes them on one after the other.
//
// It does the work of Consume of package jetstream, which can forget to ask (docs/decisions/1023). Here, the request and the count of what
// NATS was asked for are one step under one lock.
type pull struct {
	source Source
	most   int
	handle func(m *nats.Msg, free func())
	lost   func(reason string)
	// closed is closed when no more message is passed on.
	closed chan struct{}

	subscription *nats.Subscription

	mu sync.Mutex
	// asked are the messages that NATS was asked for, and that have not come yet; held are those that came, and are not freed.
	asked, held int
	// overdue asks again when NATS has said nothing for too long.
	overdue *time.Timer
	// ended says that NATS is asked for nothing more.
	ended bool
}

// startPull begins to ask for messages. At most as many as most are on the way or not freed. handle gets one at a time, does not wait, and
// lets free be called once for each message, to make room for another one. lost is called if no more message comes, because NATS does not know the consumer, or because
// the connection was closed.
func startPull(source Source, most int, handle func(m *nats.Msg, free func()), lost func(reason string)) (*pull, error) {
	p := &pull{source: source, most: most, handle: handle, lost: lost, closed: make(chan struct{})}
	p.mu.Lock() // until all fields are there
	defer p.mu.Unlock()
	var err error
	if p.subscription, err = source.Conn.Subscribe(source.Conn.NewInbox(), p.receive); err != nil {
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

// stop asks for no more messages. Those that are here are still passed on.
func (p *pull) stop() {
	p.end()
	_ = p.subscription.Drain() // fails only if the subscription is closed
}

// end lets NATS be asked for nothing more. It tells whether it was the first call.
func (p *pull) end() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.ended
	p.ended = true
	p.overdue.Stop()
	return first
}

// receive gets messages, and what NATS says about requests.
func (p *pull) receive(m *nats.Msg) {
	unasked, refused := 0, false
	switch code := m.Header.Get("Status"); {
	case m.Reply != "": // only messages are to be acknowledged
		p.mu.Lock()
		p.asked, p.held = max(p.asked-1, 0), p.held+1
		p.wait(2 * heartbeat)
		p.mu.Unlock()
		p.handle(m, p.free)
		return
	case code == statusHeartbeat:
	case code == statusBadRequest, code == statusNoResponders, code == statusConflict && m.Header.Get("Description") == consumerDeleted:
		p.lost(fmt.Sprintf("%s %s", code, m.Header.Get("Description")))
		return
	case code == statusTimeout:
		left, err := strconv.Atoi(m.Header.Get(unanswered))
		unasked, refused = left, err != nil
	default: // there is another leader, or the server shuts down
		refused = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if refused {
		p.asked = 0
		p.wait(pullAgain)
		return
	}
	p.asked = max(p.asked-unasked, 0)
	p.ask()
	p.wait(2 * heartbeat)
}

// free makes room for another message.
func (p *pull) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held--
	p.ask()
}

// startAgain forgets what NATS was asked for: the connection is another one, or NATS does not know the request any more.
func (p *pull) startAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = 0
	p.ask()
	p.wait(2 * heartbeat)
}

// wait begins to wait for NATS to say something. The caller holds the lock.
func (p *pull) wait(limit time.Duration) {
	if !p.ended {
		p.overdue.Reset(limit)
	}
}

// ask asks for as many messages as there is room for, when half of the room or more is empty: a request for each message would cost more.
// The caller holds the lock.
func (p *pull) ask() {
	if p.asked+p.held >= (p.most+1)/2 || p.ended {
		return
	}
	request, err := json.Marshal(struct {
		Batch     int           `json:"batch"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{p.most - p.asked - p.held, pullExpiry, heartbeat})
	if err == nil {
		err = p.source.Conn.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+p.source.Stream+"."+p.source.Consumer, p.subscription.Subject, request)
	}
	if err == nil { // without a connection, the next one asks
		p.asked = p.most - p.held
		p.wait(2 * heartbeat)
	}
}
