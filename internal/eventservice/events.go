package eventservice

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
	"github.com/kyma-project/eventmesh-migration/internal/exemplar"
	"github.com/kyma-project/eventmesh-migration/internal/labelcap"
)

const (
	// mostEvents bounds how many types of sources the metrics tell apart.
	mostEvents = 2_000
	// longestLabel is the longest type or source that is told apart. A Subscription cannot name a
	// longer one.
	longestLabel = 512
)

// Results of accepted events, in addition to those of Metrics.Taken.
const (
	resultRepeated     = "repeated"
	resultUnsubscribed = "unsubscribed"
)

// eventMetrics count events by what became of them. Each event counts once: as accepted or as
// refused.
type eventMetrics struct {
	refused *prometheus.CounterVec
	backend prometheus.Observer
	traces  exemplar.Pace
	// The rest is for a server that tells types and sources apart; nil for the event-service.
	accepted *prometheus.CounterVec
	kyma     *kymaMetrics
	taken    string

	cap   *labelcap.Cap
	mu    sync.RWMutex
	known map[kind]*kindMetrics
}

// kind is a type of a source.
type kind struct{ eventType, source string }

// kindMetrics are the metrics of one kind, so that none is looked up by its labels for each event.
type kindMetrics struct {
	kind // as labels

	mu       sync.Mutex
	outcomes map[outcome]outcomeMetrics
}

// outcome is what became of an event that the sender was given. result is "" if it was not taken;
// cause says why.
type outcome struct {
	result, cause string
	status        int
}

type outcomeMetrics struct {
	ours prometheus.Counter
	kyma kymaOutcome
}

func newEventMetrics(named Metrics, prefix string, ours prometheus.Registerer, backend prometheus.Observer, kyma *kymaMetrics) *eventMetrics {
	m := &eventMetrics{backend: backend, kyma: kyma, taken: named.Taken, cap: labelcap.New(mostEvents), known: map[kind]*kindMetrics{}}
	labels := []string{"cause"}
	help := "Events that were not taken, by cause."
	if named.Taken != "" {
		labels = append(labels, "type", "source")
		help = "Events that were not taken, by cause. Type and source are empty if the event could not be read, and other beyond 2000 combinations."
		m.accepted = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_events_accepted_total",
			Help: "Events that were taken, by what became of them: stored; delivered, on the mesh; repeated, because the backend had them already; unsubscribed, because no Subscription names them, so that nothing is stored. " +
				"Type and source are other beyond 2000 combinations.",
		}, []string{"result", "type", "source"})
		ours.MustRegister(m.accepted)
	}
	m.refused = prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "_events_refused_total", Help: help}, labels)
	ours.MustRegister(m.refused)
	return m
}

// unread counts a request that was refused before its event was given to the sender.
func (m *eventMetrics) unread(problem *legacy.Problem) {
	if m.accepted == nil {
		m.refused.WithLabelValues(problem.Cause).Inc()
		return
	}
	m.refused.WithLabelValues(problem.Cause, "", "").Inc()
}

// sent counts an event that the sender was given, and what came of it.
func (m *eventMetrics) sent(e *cloudevent.Event, from http.Header, problem *legacy.Problem, took time.Duration) {
	trace := m.traces.Of(from[exemplar.Header])
	exemplar.Observe(m.backend, took.Seconds(), trace)
	if m.accepted == nil {
		if problem != nil {
			m.unread(problem)
		}
		return
	}
	o := outcome{result: m.taken, status: http.StatusNoContent}
	switch {
	case problem != nil:
		o = outcome{cause: problem.Cause, status: problem.Status}
	case e.Repeated:
		o.result = resultRepeated
	case e.Unsubscribed:
		o.result = resultUnsubscribed
	}
	of := m.outcome(e, o)
	exemplar.Count(of.ours, trace)
	of.kyma.count(took)
}

// outcome are the metrics of an outcome of events like this one.
func (m *eventMetrics) outcome(e *cloudevent.Event, o outcome) outcomeMetrics {
	k := m.kind(kind{e.Type, e.Source})
	k.mu.Lock()
	defer k.mu.Unlock()
	of, known := k.outcomes[o]
	if known {
		return of
	}
	if o.result != "" {
		of.ours = m.accepted.WithLabelValues(o.result, k.eventType, k.source)
	} else {
		of.ours = m.refused.WithLabelValues(o.cause, k.eventType, k.source)
	}
	of.kyma = m.kyma.outcome(k.kind, strconv.Itoa(o.status))
	k.outcomes[o] = of
	return of
}

// kind are the metrics of a type of a source, or of all those that are not told apart.
func (m *eventMetrics) kind(is kind) *kindMetrics {
	m.mu.RLock()
	known := m.known[is]
	m.mu.RUnlock()
	if known != nil {
		return known
	}
	labels := kind{labelcap.Other, labelcap.Other}
	if labelable(is.eventType) && labelable(is.source) {
		values := m.cap.Values(is.eventType, is.source)
		labels = kind{strings.Clone(values[0]), strings.Clone(values[1])} // and not a part of a request
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known[labels] == nil {
		m.known[labels] = &kindMetrics{kind: labels, outcomes: map[outcome]outcomeMetrics{}}
	}
	return m.known[labels]
}

// labelable tells whether a text can be the value of a label. What the sender has refused may be
// anything.
func labelable(text string) bool { return len(text) <= longestLabel && cloudevent.Printable(text) }
