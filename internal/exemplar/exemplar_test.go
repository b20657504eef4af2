package exemplar

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func TestOf(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, tc := range []struct {
		reason, header, want string
	}{
		{"a sampled trace", "00-" + id + "-00f067aa0ba902b7-01", id},
		{"other flags beside it", "00-" + id + "-00f067aa0ba902b7-0b", id},
		{"a later version with more behind it", "cc-" + id + "-00f067aa0ba902b7-01-more", id},
		{"a trace that nobody keeps", "00-" + id + "-00f067aa0ba902b7-00", ""},
		{"the same with another flag", "00-" + id + "-00f067aa0ba902b7-0a", ""},
		{"no trace", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", ""},
		{"letters that are no digits", "00-" + id[:31] + "G-00f067aa0ba902b7-01", ""},
		{"too short", "00-" + id + "-00f067aa0ba902b7-1", ""},
		{"another separator", "00_" + id + "-00f067aa0ba902b7-01", ""},
		{"what a client makes of it", "\xff", ""},
	} {
		if got := Of([]string{tc.header}); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
	if got := Of(nil); got != "" {
		t.Errorf("without a header: %q", got)
	}
}

// TestPace: of many events at a time, one leaves its trace. One without a trace takes no turn.
func TestPace(t *testing.T) {
	const header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var p Pace
	if p.Of(nil) != "" || p.Of([]string{header}) == "" {
		t.Fatal("the first event with a trace leaves none")
	}
	n, began := 0, time.Now()
	for range 1000 {
		if p.Of([]string{header}) != "" {
			n++
		}
	}
	if most := int(time.Since(began)/pause) + 1; n > most {
		t.Errorf("%d of 1000 at a time, want at most %d", n, most)
	}
	p.last.Add(-int64(pause))
	if p.Of([]string{header}) == "" {
		t.Error("after the pause there is none")
	}
}

// TestExemplars: a counter and a histogram have the trace of the last event that has one, and count
// the others, too.
func TestExemplars(t *testing.T) {
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "c_total"})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h_seconds", Buckets: []float64{1}})
	for _, trace := range []string{"", "4bf92f3577b34da6a3ce929d0e0e4736", ""} {
		Count(counter, trace)
		Observe(histogram, 0.5, trace)
	}
	var c, h dto.Metric
	if err := counter.Write(&c); err != nil {
		t.Fatal(err)
	}
	if err := histogram.Write(&h); err != nil {
		t.Fatal(err)
	}
	for _, is := range []*dto.Exemplar{c.GetCounter().GetExemplar(), h.GetHistogram().GetBucket()[0].GetExemplar()} {
		if of := is.GetLabel(); len(of) != 1 || of[0].GetName() != "trace_id" || of[0].GetValue() != "4bf92f3577b34da6a3ce929d0e0e4736" {
			t.Errorf("the exemplar is %v", is)
		}
	}
	if c.GetCounter().GetValue() != 3 || h.GetHistogram().GetSampleCount() != 3 {
		t.Errorf("%v events, %d values", c.GetCounter().GetValue(), h.GetHistogram().GetSampleCount())
	}
}
