package execute

import (
	"context"
)

// place is a unit's place among those that run at once.
type place struct {
	room chan struct{}
	held bool
}

// take waits for room; false if no more may begin.
func (p *place) take(work context.Context) bool {
	select {
	case <-work.Done():
		return false
	case p.room <- struct{}{}:
	}
	p.held = true
	if work.Err() != nil {
		p.leave()
	}
	return p.held
}

func (p *place) leave() {
	if p.held {
		<-p.room
		p.held = false
	}
}

// turn is what a unit holds from a guarded change on, up to the change until.
type turn struct {
	held  chan struct{}
	until int
}

func (t *turn) end() {
	if t.held != nil {
		<-t.held
		t.held = nil
	}
}

// take waits for the turn of that name; false if no more may begin. While it waits, the
// unit gives up its place: the one that has the turn may need it.
func (x *Executor) take(name string, until int, p *place) (turn, bool) {
	x.mu.Lock()
	held := x.turns[name]
	if held == nil {
		held = make(chan struct{}, 1)
		x.turns[name] = held
	}
	x.mu.Unlock()
	t := turn{held, until}
	select {
	case held <- struct{}{}:
		return t, true
	default:
	}
	p.leave()
	select {
	case held <- struct{}{}:
	case <-x.work.Done():
		return turn{}, false
	}
	if !p.take(x.work) {
		t.end()
		return turn{}, false
	}
	return t, true
}
