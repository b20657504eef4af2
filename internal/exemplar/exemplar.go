// Package exemplar ties what a metric counts to the trace of one event: its exemplar in the format
// OpenMetrics.
package exemplar

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Header has the trace of an event (W3C Trace Context), in the canonical form.
const Header = "Traceparent"

// label is where Grafana and the SDKs of OpenTelemetry look for the id.
const label = "trace_id"

// A traceparent is <version>-<trace id>-<parent id>-<flags>. A later version may have more behind
// it.
const (
	version  = 2
	traceID  = version + 1 + 32
	parentID = traceID + 1 + 16
	flags    = parentID + 1 + 2
	noTrace  = "00000000000000000000000000000000"
)

// pause is the shortest time between two exemplars of a Pace. Prometheus gets the last one of each
// series when it scrapes, and one costs ten times as much as counting the event.
const pause = 10 * time.Millisecond

// Pace bounds how often events leave their traces. The zero value can be used.
type Pace struct{ last atomic.Int64 }

// Of is the function Of, and "" if another event has just had an exemplar.
func (p *Pace) Of(values []string) string {
	id := Of(values)
	if id == "" {
		return ""
	}
	last, now := p.last.Load(), time.Now().UnixNano()
	if now-last < int64(pause) || !p.last.CompareAndSwap(last, now) {
		return ""
	}
	return id
}

// Of returns the id of the trace of an event, by the values of its header; "" if it has none, or if
// the trace is not sampled: nobody would find it.
func Of(values []string) string {
	if len(values) == 0 {
		return ""
	}
	v := values[0]
	if len(v) < flags || v[version] != '-' || v[traceID] != '-' || v[parentID] != '-' || !hex(v[:version]) || !hex(v[parentID+1:flags]) {
		return ""
	}
	id := v[version+1 : traceID]
	if !hex(id) || id == noTrace || !sampled(v[flags-1]) {
		return ""
	}
	return id
}

// sampled reads the last digit of the flags, of which the lowest bit says so.
func sampled(digit byte) bool {
	if digit >= 'a' {
		digit -= 'a' - 10
	}
	return digit&1 == 1
}

func hex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Observe adds a value to a histogram, with the trace of its event if that has one.
func Observe(to prometheus.Observer, value float64, trace string) {
	if with, ok := to.(prometheus.ExemplarObserver); ok && trace != "" {
		with.ObserveWithExemplar(value, prometheus.Labels{label: trace})
		return
	}
	to.Observe(value)
}

// Count adds one to a counter, with the trace of its event if that has one.
func Count(to prometheus.Counter, trace string) {
	if with, ok := to.(prometheus.ExemplarAdder); ok && trace != "" {
		with.AddWithExemplar(1, prometheus.Labels{label: trace})
		return
	}
	to.Inc()
}
