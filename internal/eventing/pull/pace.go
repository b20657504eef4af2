package pull

import (
	"slices"
	"sync"
	"time"
)

const (
	// While fewer acknowledgments than few are unanswered, nobody begins to wait. While there are
	// many, answers let nobody ask, so that there will be fewer. The numbers are measured: with 300
	// and 600 NATS delivered a third less.
	few, many = 50, 120
	// recent is for how long an acknowledgment counts. A NATS that only has much to do answers many
	// sooner; a consumer that does not answer for another reason must not hold up the others.
	recent = 500 * time.Millisecond
	// growth is how often those that wait may ask for more than was acknowledged.
	growth = 250 * time.Millisecond
)

// Pace holds back requests for messages while NATS is slow to answer acknowledgments, for all Pulls
// of a process.
//
// NATS sends messages faster than it stores that they were taken. With 1,000 consumers, thousands
// of acknowledgments would be answered seconds late, and NATS would have to be told meanwhile of
// the messages of all consumers. Here, while many are unanswered, as many messages are asked for as
// were acknowledged, by one Pull after the other, each for all that it may have. So few consumers
// are busy at a time, and NATS stores the state of each once for many acknowledgments.
type Pace struct {
	mu sync.Mutex
	// sent are acknowledgments by their time, from the first one that counts; unanswered is how
	// many of them count.
	sent       []*Acknowledgment
	unanswered int
	recent     time.Duration
	// queue are those that wait, and credit is how many messages they may ask for.
	queue  []*place
	credit int
	// grows adds step to the credit from time to time, and more each time.
	grows *time.Timer
	step  int
}

// place is that of a Pull in the queue. granted is called when it may ask for so many messages.
type place struct {
	messages int
	granted  func()
}

// Acknowledgment is one that NATS was sent.
type Acknowledgment struct {
	of     *Pace
	at     time.Time
	counts bool
}

// NewPace returns a Pace for all Pulls of a process.
func NewPace() *Pace {
	c := &Pace{recent: recent}
	c.grows = time.AfterFunc(growth, c.grow)
	c.grows.Stop()
	return c
}

// Acknowledge is called when an acknowledgment is sent.
func (c *Pace) Acknowledge() *Acknowledgment {
	a := &Acknowledgment{of: c, at: time.Now(), counts: true}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, a)
	c.unanswered++
	return a
}

// Answered is called when NATS has answered, or nobody waits for it any more.
func (a *Acknowledgment) Answered() {
	a.of.update(func(c *Pace) {
		if !a.counts {
			return
		}
		c.uncount(a)
		switch {
		case c.unanswered < few:
			c.credit += 2
		case c.unanswered < many:
			c.credit++
		}
	})
}

// grow lets those ask that no answer lets: nothing may be there to be answered.
func (c *Pace) grow() {
	c.update(func(*Pace) {
		c.step += 2 * few
		if c.unanswered >= few {
			c.step = 0
		}
		c.credit += c.step
		c.grows.Reset(growth)
	})
}

// update changes the credit, and lets those ask that have it then.
func (c *Pace) update(change func(*Pace)) {
	c.mu.Lock()
	c.age()
	change(c)
	n := 0
	for ; n < len(c.queue) && c.queue[n].messages <= c.credit; n++ {
		c.credit -= c.queue[n].messages
	}
	granted := slices.Clone(c.queue[:n])
	c.queue = slices.Delete(c.queue, 0, n)
	if len(c.queue) == 0 {
		c.credit, c.step = 0, 0
		c.grows.Stop()
	}
	c.mu.Unlock()
	for _, p := range granted {
		p.granted()
	}
}

// wait tells whether a Pull may ask for so many messages now. If not, it is granted when it may.
func (c *Pace) wait(p *place, messages int) (now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.age()
	if len(c.queue) == 0 && c.unanswered < few {
		return true
	}
	if len(c.queue) == 0 {
		c.grows.Reset(growth)
	}
	p.messages = messages
	c.queue = append(c.queue, p)
	return false
}

// leave lets a Pull wait no more.
func (c *Pace) leave(p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = slices.DeleteFunc(c.queue, func(other *place) bool { return other == p })
}

// age lets acknowledgments count no more that are not recent. The caller holds the lock.
func (c *Pace) age() {
	n, now := 0, time.Now()
	for ; n < len(c.sent) && (!c.sent[n].counts || now.Sub(c.sent[n].at) > c.recent); n++ {
		if c.sent[n].counts {
			c.uncount(c.sent[n])
		}
	}
	clear(c.sent[:n])
	c.sent = c.sent[n:]
}

// uncount lets an acknowledgment count no more. The caller holds the lock.
func (c *Pace) uncount(a *Acknowledgment) {
	a.counts = false
	c.unanswered--
}
