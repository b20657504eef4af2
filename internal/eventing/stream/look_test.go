package stream

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestLook: of several servers, nothing is purged by what one of them says right after another one
// led, was replaced or had other consumers.
func TestLook(t *testing.T) {
	start := time.Now()
	cluster := func(leader string, current bool) *jetstream.ClusterInfo {
		return &jetstream.ClusterInfo{Leader: leader, Replicas: []*jetstream.PeerInfo{{Name: "b", Current: true}, {Name: "c", Current: current}}}
	}
	of := func(last uint64, c *jetstream.ClusterInfo) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{State: jetstream.StreamState{LastSeq: last}, Cluster: c}
	}
	consumer := func(name string, floor uint64, c *jetstream.ClusterInfo) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{Name: name, Created: start, Config: jetstream.ConsumerConfig{FilterSubject: "a"}, AckFloor: jetstream.SequenceInfo{Stream: floor}, Cluster: c}
	}
	calm := cluster("a", true)
	for _, tc := range []struct {
		reason   string
		was, is  *jetstream.StreamInfo
		had, has []*jetstream.ConsumerInfo
		after    time.Duration
		last     uint64 // 0: there is nothing to compare with
		floor    uint64
		unstable bool
	}{
		{"both looks say the same", of(9, calm), of(12, calm), []*jetstream.ConsumerInfo{consumer("x", 5, calm)}, []*jetstream.ConsumerInfo{consumer("x", 7, calm)}, StableFor, 9, 5, false},
		{"the floor was higher for a moment", of(9, calm), of(12, calm), []*jetstream.ConsumerInfo{consumer("x", 8, calm)}, []*jetstream.ConsumerInfo{consumer("x", 5, calm)}, StableFor, 9, 5, false},
		{"too soon", of(9, calm), of(12, calm), nil, nil, StableFor - time.Second, 0, 0, false},
		{"another server leads the stream", of(9, calm), of(12, cluster("b", true)), nil, nil, StableFor, 0, 0, false},
		{"another stream", of(9, calm), &jetstream.StreamInfo{Created: start, State: jetstream.StreamState{LastSeq: 3}, Cluster: calm}, nil, nil, StableFor, 0, 0, false},
		{"a server has no copy yet", of(9, calm), of(12, cluster("a", false)), nil, nil, StableFor, 0, 0, false},
		{"a server had no copy yet", of(9, cluster("a", false)), of(12, calm), nil, nil, StableFor, 0, 0, false},
		{"another server leads the consumer", of(9, calm), of(12, calm), []*jetstream.ConsumerInfo{consumer("x", 5, calm)}, []*jetstream.ConsumerInfo{consumer("x", 7, cluster("b", true))}, StableFor, 9, 0, true},
		{"a server has no copy of the consumer", of(9, calm), of(12, calm), []*jetstream.ConsumerInfo{consumer("x", 5, calm)}, []*jetstream.ConsumerInfo{consumer("x", 7, cluster("a", false))}, StableFor, 9, 0, true},
		{"a consumer is new", of(9, calm), of(12, calm), nil, []*jetstream.ConsumerInfo{consumer("x", 7, calm)}, StableFor, 9, 0, true},
		{"a consumer is not named any more", of(9, calm), of(12, calm), []*jetstream.ConsumerInfo{consumer("x", 5, calm)}, nil, StableFor, 9, 0, true},
	} {
		l := &Look{}
		if former := l.stable(tc.was, tc.had, start); former != nil {
			t.Errorf("%s: the first look is compared with %v", tc.reason, former)
		}
		former := l.stable(tc.is, tc.has, start.Add(tc.after))
		if (former == nil) != (tc.last == 0) {
			t.Errorf("%s: compared with %v", tc.reason, former)
		}
		if former == nil {
			continue
		}
		both, ok := former.of("a", tc.has)
		if upTo, _, _ := unwanted("a", former.last, both); ok == tc.unstable || former.last != tc.last || ok && upTo != tc.floor {
			t.Errorf("%s: up to %d, stable %t, last %d", tc.reason, upTo, ok, former.last)
		}
	}
}
