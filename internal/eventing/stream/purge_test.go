package stream

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
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
