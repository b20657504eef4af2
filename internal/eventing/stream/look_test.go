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
	away := &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{{Name: "b", Current: true}, {Name: "c", Offline: true}}}
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
		{"a server is away for long", of(9, away), of(12, away), []*jetstream.ConsumerInfo{consumer("x", 5, away)}, []*jetstream.ConsumerInfo{consumer("x", 7, away)}, StableFor, 9, 5, false},
		{"a server has gone", of(9, calm), of(12, away), nil, nil, StableFor, 0, 0, false},
		{"a server has come back", of(9, away), of(12, calm), nil, nil, StableFor, 0, 0, false},
		{"nobody leads", of(9, calm), of(12, &jetstream.ClusterInfo{}), nil, nil, StableFor, 0, 0, false},
		{"another server leads the consumer", of(9, calm), of(12, calm), []*jetstream.ConsumerInfo{consumer("x", 5, calm)}, []*jetstream.ConsumerInfo{consumer("x", 7, cluster("b", true))}, StableFor, 9, 0, true},
		{"a server has no copy of the consumer", of(9, calm), of(12, calm), []*jetstream.ConsumerInfo{consumer("x", 5, calm)}, []*jetstream.ConsumerInfo{consumer("x", 7, cluster("a", false))}, StableFor, 9, 0, true},
		{"a consumer is new", of(9, calm), of(12, calm), nil, []*jetstream.ConsumerInfo{consumer("x", 7, calm)}, StableFor, 9, 0, true},
		{"a consumer is not named any more", of(9, calm), of(12, calm), []*jetstream.ConsumerInfo{consumer("x", 5, calm)}, nil, StableFor, 9, 0, true},
	} {
		l := &Look{}
		if former := l.next(tc.was, tc.had, start); former != nil {
			t.Errorf("%s: the first look is compared with %v", tc.reason, former)
		}
		former := l.next(tc.is, tc.has, start.Add(tc.after))
		if (former == nil) != (tc.last == 0) {
			t.Errorf("%s: compared with %v", tc.reason, former)
		}
		if former == nil {
			continue
		}
		both, ok := l.of(former, l.index(), "a", start.Add(tc.after))
		if upTo, _, _ := unwanted("a", former.last, both); ok == tc.unstable || former.last != tc.last || ok && upTo != tc.floor {
			t.Errorf("%s: up to %d, stable %t, last %d", tc.reason, upTo, ok, former.last)
		}
	}
}

// TestLooks: what several servers say is believed as long as they go on to say the same, and not
// for a while after that.
func TestLooks(t *testing.T) {
	start, l := time.Now(), &Look{}
	calm := &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{{Name: "b", Current: true}}}
	consumer := func(floor uint64, leader string) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{Name: "x", Config: jetstream.ConsumerConfig{FilterSubject: "a"}, AckFloor: jetstream.SequenceInfo{Stream: floor},
			Cluster: &jetstream.ClusterInfo{Leader: leader, Replicas: calm.Replicas}}
	}
	for _, tc := range []struct {
		at      time.Duration
		has     *jetstream.ConsumerInfo
		stable  bool
		subject bool
	}{
		{0, consumer(1, "a"), false, false},
		{5 * time.Second, consumer(2, "a"), false, false},
		{10 * time.Second, consumer(3, "a"), true, true},
		{11 * time.Second, consumer(4, "a"), true, true},
		{16 * time.Second, consumer(5, "b"), true, false},
		{21 * time.Second, consumer(5, "b"), true, false},
		{26 * time.Second, consumer(6, "b"), true, true},
		{31 * time.Second, nil, true, false},
		{36 * time.Second, nil, true, false},
		{41 * time.Second, nil, true, true},
		{42 * time.Second, consumer(6, "b"), true, false},
		{52 * time.Second, consumer(7, "b"), true, true},
	} {
		now := start.Add(tc.at)
		var all []*jetstream.ConsumerInfo
		if tc.has != nil {
			all = append(all, tc.has)
		}
		former := l.next(&jetstream.StreamInfo{Cluster: calm}, all, now)
		if former == nil {
			if tc.stable {
				t.Errorf("%s: nothing is believed", tc.at)
			}
			continue
		}
		both, ok := l.of(former, l.index(), "a", now)
		if !tc.stable || ok != tc.subject || ok && len(both) != 2*len(all) {
			t.Errorf("%s: it is believed; the subject: %t, by %d", tc.at, ok, len(both))
		}
	}
}
