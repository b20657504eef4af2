package takeover

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Backlog is what the stream of one NATS holds, over all its servers.
type Backlog struct {
	// Stream says whether there is the stream at all.
	Stream bool
	// Messages are those that the stream holds, of the server that holds most. Waiting are those
	// that a consumer has yet to deliver, or that were delivered and not acknowledged.
	Messages, Waiting int64
	// LastSeq is the number of the newest message.
	LastSeq uint64
	// Consumers are the names of all consumers; Bound those to which somebody listens.
	Consumers, Bound []string
	// Others are other streams.
	Others []string

	// waits are the messages that each consumer has yet to deliver, of the server that knows most.
	waits map[string]int64
}

// Drained tells whether nothing is stored that somebody waits for.
func (b *Backlog) Drained() bool { return b.Messages == 0 && b.Waiting == 0 }

// GivenUp are messages that no consumer delivers any more: Kyma's operator gives each up after 100
// times.
func (b *Backlog) GivenUp() int64 {
	if b.Waiting > 0 {
		return 0
	}
	return b.Messages
}

// jsz is what nats-server answers at /jsz.
type jsz struct {
	Accounts []struct {
		Streams []struct {
			Name  string `json:"name"`
			State struct {
				Messages int64  `json:"messages"`
				LastSeq  uint64 `json:"last_seq"`
			} `json:"state"`
			Consumers []struct {
				Name       string `json:"name"`
				Pending    int64  `json:"num_pending"`
				AckPending int64  `json:"num_ack_pending"`
				PushBound  bool   `json:"push_bound"`
			} `json:"consumer_detail"`
		} `json:"stream_detail"`
	} `json:"account_details"`
}

// jszPath asks for all that add reads.
const jszPath = "/jsz?accounts=true&streams=true&consumers=true"

// add adds the answer of one server. A stream with copies is counted once: what one server does not
// hold any more, and another one does, is held.
func (b *Backlog) add(answer []byte, stream string) error {
	var is jsz
	if err := json.Unmarshal(answer, &is); err != nil {
		return fmt.Errorf("the answer of nats-server cannot be read: %w", err)
	}
	for _, a := range is.Accounts {
		for _, s := range a.Streams {
			if s.Name != stream {
				b.Others = distinct(b.Others, s.Name)
				continue
			}
			b.Stream = true
			b.Messages = max(b.Messages, s.State.Messages)
			b.LastSeq = max(b.LastSeq, s.State.LastSeq)
			var waiting int64
			for _, c := range s.Consumers {
				waiting += c.Pending + c.AckPending
				b.Consumers = append(b.Consumers, c.Name)
				if c.PushBound {
					b.Bound = append(b.Bound, c.Name)
				}
				if n := max(b.waits[c.Name], c.Pending+c.AckPending); n > 0 {
					if b.waits == nil {
						b.waits = map[string]int64{}
					}
					b.waits[c.Name] = n
				}
			}
			b.Waiting = max(b.Waiting, waiting)
		}
	}
	for _, names := range []*[]string{&b.Consumers, &b.Bound} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return nil
}

// has tells whether a name is among Consumers or Bound, which are sorted.
func has(sorted []string, name string) bool {
	_, found := slices.BinarySearch(sorted, name)
	return found
}

func distinct(all []string, name string) []string {
	if slices.Contains(all, name) {
		return all
	}
	return append(all, name)
}
