package repeats

import (
	"net/http"
	"strconv"
	"testing"
)

// TestBounded: the last events are remembered, and no more than that.
func TestBounded(t *testing.T) {
	taken := New()
	of := func(i int) Event {
		return EventOf("uid", "http://orders", ID(http.Header{"Ce-Id": {strconv.Itoa(i)}}, nil))
	}
	for i := range remembered + 1 {
		taken.Note(of(i))
	}
	for i, want := range map[int]bool{0: false, 1: true, remembered: true, remembered + 1: false} {
		if got := taken.Has(of(i)); got != want {
			t.Errorf("event %d is remembered: %t", i, got)
		}
	}
}

func BenchmarkEventOf(b *testing.B) {
	header, data := http.Header{"Ce-Id": {"17"}, "Ce-Source": {"shop"}, "Ce-Type": {"order.created.v1"}}, make([]byte, 1000)
	for b.Loop() {
		EventOf("5f3e7a0c", "http://orders.shop.svc.cluster.local", ID(header, data))
	}
}
