package stream

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
)

func TestUnwanted(t *testing.T) {
	t.Parallel()
	consumer := func(floor, pending uint64, filters ...string) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{FilterSubjects: filters}, AckFloor: jetstream.SequenceInfo{Stream: floor}, NumPending: pending}
	}
	for _, tc := range []struct {
		reason         string
		consumers      []*jetstream.ConsumerInfo
		upTo           uint64
		shared, behind bool
	}{
		{"nobody is there", nil, 100, false, false},
		{"all have other subjects", []*jetstream.ConsumerInfo{consumer(5, 9, "kyma.a.x.z", "kyma.b.x.y", "kyma.a.x", "kyma.a.x.y.z", "kyma.*.y.x")}, 100, false, false},
		{"one has taken everything", []*jetstream.ConsumerInfo{consumer(100, 0, "kyma.a.x.y")}, 100, true, false},
		{"one has taken everything of its own, and says little", []*jetstream.ConsumerInfo{consumer(7, 0, "kyma.*.x.y")}, 7, true, false},
		{"one has to get what came after 7", []*jetstream.ConsumerInfo{consumer(90, 0, "kyma.a.x.y"), consumer(7, 1, "kyma.c.d", "kyma.a.x.y")}, 7, true, true},
		{"one has taken nothing", []*jetstream.ConsumerInfo{consumer(0, 1, "kyma.a.>")}, 0, true, true},
		{"somebody else has all subjects", []*jetstream.ConsumerInfo{consumer(3, 1)}, 3, true, true},
		{"one is ahead: it began after the last sequence was read", []*jetstream.ConsumerInfo{consumer(120, 4, "kyma.a.x.y")}, 100, true, false},
	} {
		upTo, shared, behind := unwanted("kyma.a.x.y", 100, tc.consumers)
		if upTo != tc.upTo || shared != tc.shared || behind != tc.behind {
			t.Errorf("%s: up to %d, shared %t, behind %t; want %d, %t, %t", tc.reason, upTo, shared, behind, tc.upTo, tc.shared, tc.behind)
		}
	}
}

// TestHolds: what several servers hold that all have taken is not said to wait.
func TestHolds(t *testing.T) {
	t.Parallel()
	consumer := func(name string, pending uint64, unanswered int) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{Metadata: map[string]string{SubscriptionKey: "shop/" + name}}, NumPending: pending, NumAckPending: unanswered}
	}
	for _, tc := range []struct {
		reason    string
		servers   int32
		events    uint64
		consumers []*jetstream.ConsumerInfo
		waiting   uint64
		holds     string
	}{
		{"one server", 1, 5, []*jetstream.ConsumerInfo{consumer("orders", 3, 2)}, 5, "NATS holds 5 events. Most events wait for shop/orders (5)."},
		{"one server, and nobody waits", 1, 5, nil, 5, "NATS holds 5 events. "},
		{"three servers, with events that were taken", 3, 500, []*jetstream.ConsumerInfo{consumer("orders", 3, 2)}, 5, "NATS holds 5 events. Most events wait for shop/orders (5)."},
		{"three servers, and each event waits for two", 3, 5, []*jetstream.ConsumerInfo{consumer("a", 5, 0), consumer("b", 5, 0)}, 5, "NATS holds 5 events. Most events wait for shop/a (5), shop/b (5)."},
		{"three servers, and all was taken", 3, 500, []*jetstream.ConsumerInfo{consumer("orders", 0, 0)}, 0, "NATS holds 500 events that all have taken. The controller that leads deletes them, while each server is up to date or away."},
	} {
		of := &jetstream.StreamInfo{Config: Config(operatorv1alpha1.BackendConfig{NATSStreamReplicas: tc.servers}, "e1", false), State: jetstream.StreamState{Msgs: tc.events}}
		if got := Waiting(of, tc.consumers); got != tc.waiting {
			t.Errorf("%s: %d wait, want %d", tc.reason, got, tc.waiting)
		}
		if got := Holds(of, tc.consumers); got != tc.holds {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.holds)
		}
	}
}
