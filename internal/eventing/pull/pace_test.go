package pull

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// asking are Pulls that wait for a Pace, by the number of messages they want. granted are those
// that may ask, in order.
type asking struct {
	pace    *Pace
	mu      sync.Mutex
	granted []int
}

func (a *asking) taken() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	granted := a.granted
	a.granted = nil
	return granted
}

func (a *asking) wait(messages int) *place {
	p := &place{granted: func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.granted = append(a.granted, messages)
	}}
	if a.pace.wait(p, messages) {
		p.granted()
	}
	return p
}

// acknowledge sends n acknowledgments.
func (a *asking) acknowledge(n int) (all []*Acknowledgment) {
	for range n {
		all = append(all, a.pace.Acknowledge())
	}
	return all
}

// want checks who may ask, since the last call.
func (a *asking) want(t *testing.T, reason string, want ...int) {
	t.Helper()
	if diff := cmp.Diff(want, a.taken()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", reason, diff)
	}
}

func answer(all []*Acknowledgment) {
	for _, a := range all {
		a.Answered()
	}
}

// TestPace: nobody waits while few acknowledgments are unanswered. While more are, those that wait
// ask in order, for as many messages as are acknowledged; while many are, nobody does.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := asking{pace: NewPace()}
		sent := a.acknowledge(few - 1)
		a.wait(10)
		a.want(t, "few are unanswered", 10)
		sent = append(sent, a.acknowledge(many+20-len(sent))...)
		a.wait(11)
		gone := a.wait(12)
		a.wait(13)
		a.pace.leave(gone)
		answer(sent[:20])
		a.want(t, "many are unanswered")
		answer(sent[20:31])
		a.want(t, "as many were answered as the first one asks for", 11)
		answer(sent[31:43])
		a.want(t, "fewer were answered since then")
		answer(sent[43:44])
		a.want(t, "the second one has left", 13)
		a.wait(14)
		answer(sent[44 : many+20-few])
		a.want(t, "others wait again", 14)
		a.wait(15)
		a.want(t, "there are still as many as those for whom nobody waits")
		answer(sent[many+20-few : many+20-few+8])
		a.want(t, "few are unanswered: two for each answer", 15)
		answer(sent[many+20-few+8:])
		a.wait(16)
		a.want(t, "all are answered", 16)
	})
}

// TestPaceOfSilence: acknowledgments that NATS does not answer hold up nobody for long, and when it
// answers none, those that wait ask bit by bit.
func TestPaceOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := asking{pace: NewPace()}
		silent := a.acknowledge(many)
		for range 1000 {
			a.wait(10)
		}
		time.Sleep(recent)
		synctest.Wait()
		a.want(t, "NATS may have much to do")
		var asked []string
		began := time.Now()
		for all := 0; all < 1000 && time.Since(began) < time.Minute; {
			time.Sleep(growth)
			synctest.Wait()
			if n := len(a.taken()); n > 0 {
				asked = append(asked, fmt.Sprint(time.Since(began), ": ", n))
				all += n
			}
		}
		if len(asked) < 4 {
			t.Fatalf("asked: %q, want some each time", asked)
		}
		if diff := cmp.Diff([]string{"250ms: 10", "500ms: 20", "750ms: 30", "1s: 40"}, asked[:4]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if last := "3.5s: 90"; asked[len(asked)-1] != last {
			t.Errorf("the last ones asked after %s, want %s", asked[len(asked)-1], last)
		}
		answer(silent) // late: nobody waits any more
		a.wait(10)
		a.want(t, "nothing is sent", 10)

		// A consumer that answers nothing, and others that do.
		a.acknowledge(many)
		time.Sleep(recent + time.Millisecond)
		for range 3 {
			sent := a.acknowledge(few)
			for range few / 10 {
				a.wait(10)
			}
			answer(sent)
			a.want(t, "the others are answered", slices.Repeat([]int{10}, few/10)...)
		}
	})
}
