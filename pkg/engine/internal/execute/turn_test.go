package execute

import (
	"context"
	"testing"
)

// TestTurn: of two units whose turn has the same name, one waits, in no place, so that
// the other one finds room.
func TestTurn(t *testing.T) {
	work, stop := context.WithCancel(t.Context())
	defer stop()
	x := &Executor{work: work, turns: map[string]chan struct{}{}}
	in := func() *place {
		p := &place{room: make(chan struct{}, 1)}
		if !p.take(work) {
			t.Fatal("there is no room")
		}
		return p
	}
	one, ok := x.take("channel", 1, in())
	if !ok {
		t.Fatal("nobody has the turn, and it is not given")
	}
	other, ok := x.take("another", 1, in())
	if !ok {
		t.Fatal("a turn of another name is not given")
	}
	other.end()
	other.end() // a unit ends its turn when it passes its guard, and when it returns

	waiting, done := in(), make(chan turn)
	go func() {
		second, ok := x.take("channel", 3, waiting)
		if !ok {
			t.Error("the turn is not given after it has ended")
		}
		done <- second
	}()
	waiting.room <- struct{}{} // it has left its place
	one.end()
	select {
	case <-done:
		t.Error("it goes on without a place")
	default:
	}
	<-waiting.room
	second := <-done
	if second.until != 3 || !waiting.held {
		t.Errorf("until %d, in its place: %t", second.until, waiting.held)
	}

	late := in()
	stop()
	if _, ok := x.take("channel", 1, late); ok {
		t.Error("a turn is given after the run has stopped")
	}
	second.end()
}
