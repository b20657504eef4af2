package publisher

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/subscribed"
)

func TestAnswer(t *testing.T) {
	type told struct {
		Status     int
		RetryAfter string
		MoreInfo   string
	}
	api := func(code jetstream.ErrorCode) error {
		return fmt.Errorf("nats: %w", &jetstream.APIError{Code: 503, ErrorCode: code, Description: "secret address"})
	}
	for _, tc := range []struct {
		reason string
		err    error
		want   told
	}{
		{"stored", nil, told{}},
		{"a full stream", api(10077), told{507, "30s", legacy.NotTaken}},
		{"a full server", api(10047), told{507, "30s", legacy.NotTaken}},
		{"a full volume. On f3299ef this was 503", api(10002), told{507, "30s", legacy.NotTaken}},
		{"the same event is being stored", api(10158), told{503, "2s", legacy.NotTaken}},
		{"another refusal", api(10023), told{503, "2s", legacy.NotTaken}},
		{"a closed stream", jetstream.ErrNoStreamResponse, told{503, "2s", legacy.NotTaken}},
		{"disconnected", nats.ErrReconnectBufExceeded, told{503, "2s", legacy.NotTaken}},
		{"a connection that was replaced", nats.ErrConnectionClosed, told{503, "2s", legacy.NotTaken}},
		{"no answer in time", context.DeadlineExceeded, told{504, "2s", legacy.MayBeTaken}},
		{"too large for the server", nats.ErrMaxPayload, told{413, "0s", "http: request body too large"}},
		{"an answer that is none", jetstream.ErrInvalidJSAck, told{503, "2s", legacy.MayBeTaken}},
		{"anything else", errors.New("broken pipe"), told{503, "2s", legacy.MayBeTaken}},
	} {
		var got told
		if p := answer(tc.err); p != nil {
			got = told{p.Status, p.RetryAfter.String(), p.MoreInfo}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

func TestReadSubscription(t *testing.T) {
	for _, tc := range []struct {
		reason, spec string
		want         map[string][]subscribed.Event
	}{
		{"a Subscription", "{sink: s, source: shop, types: [order.created.v1, a.b]}", map[string][]subscribed.Event{"shop": {{Name: "order.created", Version: "v1"}, {Name: "a", Version: "b"}}}},
		{"whole names", "{sink: s, source: '', typeMatching: exact, types: [shop.order.created.v1, sap.kyma.custom.shop.order.paid.v2]}", map[string][]subscribed.Event{
			"shop": {{Name: "order.created", Version: "v1"}}, "sap.kyma.custom.shop": {{Name: "order.paid", Version: "v2"}},
		}},
		{"no source", "{sink: s, source: '', types: [a.b]}", map[string][]subscribed.Event{}},
		{"a Subscription of the Event Bus", "{event_type: a, source_id: shop}", nil},
		{"a shape from elsewhere", "{sink: s, source: shop, types: a.b}", nil},
	} {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte("{spec: "+tc.spec+"}"), &obj.Object); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, readSubscription(obj)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
