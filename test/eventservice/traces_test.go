package eventservice_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/collector"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestTraces: what the service does with an event of a sampled trace is behind the client's span,
// and the adapter goes on behind that.
func TestTraces(t *testing.T) {
	t.Parallel()
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	adapter, to := newAdapter(t), collector.Start(t)
	service := start(t, adapter.URL, "--otlpEndpoint="+to.URL)
	got := mustSend(t, http.MethodPost, service.URL+eventsV1, v1(nil), map[string]string{"traceparent": "00-" + trace + "-" + parent + "-01"})
	if got.status != http.StatusOK {
		t.Fatalf("%s", got)
	}
	var spans []collector.Span
	poll.Until(t, time.Minute, "both spans have arrived", func(context.Context) error {
		if spans = to.Of(trace); len(spans) != 2 {
			return fmt.Errorf("%v", spans)
		}
		return nil
	})
	inner, outer := spans[0], spans[1]
	if inner.Name != "post event to the mesh" || outer.Name != "accept event" || inner.Parent != outer.ID || outer.Parent != parent || outer.Attributes["cloudevents.event_source"] != "shop" {
		t.Errorf("%v", spans)
	}
	received := adapter.Received("31109198-4d69-4ae0-972d-76117f3748c8")
	if len(received) != 1 || !strings.HasPrefix(received[0].Header.Get("Traceparent"), "00-"+trace+"-"+inner.ID) {
		t.Errorf("the adapter has got %v", received)
	}
}
