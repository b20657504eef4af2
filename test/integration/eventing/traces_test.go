package eventing_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/collector"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestTraces: an event whose client has a trace leaves a span where it is taken, where it is
// stored, and for each delivery, one behind the other, and the sink goes on with it. An event
// without one leaves none.
func TestTraces(t *testing.T) {
	r, to := newRig(t, true), collector.Start(t)
	var asked atomic.Int32
	r.sinks.Answer("orders", func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Ce-Id") == "traced" && asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	p := startPublisher(t, r.plane, nil, "--otlp-endpoint="+to.URL)
	p.awaitReady()
	r.controller("pod-1", "--otlp-endpoint="+to.URL)
	r.subscribe("orders", "order.created.v1", "")
	r.await("orders", "ready", ready)

	const trace, client = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for id, flags := range map[string]string{"traced": "01", "unsampled": "00"} {
		header := http.Header{
			"Ce-Specversion": {"1.0"}, "Ce-Id": {id}, "Ce-Source": {"commerce"}, "Ce-Type": {"order.created.v1"}, "Content-Type": {"text/plain"},
			"Traceparent": {"00-" + trace + "-" + client + "-" + flags},
		}
		if answer, err := ask(t.Context(), http.MethodPost, p.URL+"/publish", header, id); err != nil || answer.status != http.StatusNoContent {
			t.Fatal(answer, err)
		}
	}
	r.sinks.Await(t, "orders", limit, "traced", "unsampled")
	poll.Until(t, limit, "all spans have arrived", func(context.Context) error {
		spans := to.Of(trace)
		if len(spans) != 4 || len(r.sinks.Of("orders")) != 3 {
			return fmt.Errorf("%v", spans)
		}
		return nil
	})
	accepted, stored := "", ""
	delivered := map[string]string{} // problems by the id of the span
	for _, s := range to.Of(trace) {
		if s.Attributes["cloudevents.event_id"] != "traced" || s.Attributes["cloudevents.event_type"] != "order.created.v1" || s.Attributes["cloudevents.event_source"] != "commerce" {
			t.Errorf("%s has %v", s, s.Attributes)
		}
		switch s.Service + ": " + s.Name + ", " + s.Kind {
		case "eventing-publisher-proxy: accept event, server":
			accepted = s.ID
			if s.Parent != client {
				t.Errorf("%s: its parent is not the client's span", s)
			}
		case "eventing-publisher-proxy: store event in NATS, producer":
			stored = s.ID
		case "eventing-controller: deliver event, client":
			delivered[s.ID] = s.Problem
			if !strings.HasPrefix(fmt.Sprint(s.Attributes["url.full"]), "http://orders.") {
				t.Errorf("%s has %v", s, s.Attributes)
			}
		default:
			t.Errorf("unexpected: %s", s)
		}
	}
	for _, s := range to.Of(trace) {
		switch {
		case s.ID == stored && s.Parent != accepted:
			t.Errorf("%s: its parent is not the acceptance %s", s, accepted)
		case s.Service == "eventing-controller" && s.Parent != stored:
			t.Errorf("%s: its parent is not the storage %s", s, stored)
		}
	}
	var problems []string
	for _, q := range r.sinks.Of("orders") {
		parts := strings.Split(q.Header.Get("Traceparent"), "-")
		problem, known := delivered[parts[2]]
		switch {
		case q.ID == "unsampled" && (parts[2] != client || parts[3] != "00"), q.ID == "traced" && !known:
			t.Errorf("the sink has got %s with the trace %v", q.ID, parts)
		case q.ID == "traced":
			problems = append(problems, problem)
		}
	}
	if diff := cmp.Diff([]string{"the sink answers 503", ""}, problems); diff != "" {
		t.Errorf("what the spans of the deliveries say (-want +got):\n%s", diff)
	}
}
