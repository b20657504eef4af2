package observed

import (
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// NATS is what the servers say.
type NATS struct {
	// Connected: a server answers the operator. Problem says why none does.
	Connected bool
	Problem   string
	// Away is for how long no server has answered, since the operator started.
	Away time.Duration
	// Behind are the servers whose copy of the stream is not up to date; BehindFor is for how long
	// there have been some.
	Behind    []string
	BehindFor time.Duration
	// Stream is nil if there is none.
	Stream *jetstream.StreamInfo
	// DeadLetters is the stream of events that were given up; nil if there is none.
	DeadLetters *jetstream.StreamInfo
	// Volume is what the server says of its volume.
	Volume stream.Volume
	// Full are the subjects of which the stream takes no more events, and since when that was seen.
	Full map[string]time.Time
	// Counts are how many events the stream holds of each subject, and Sizes about how large one is
	// of those that have the most. Both are read only if there is little room.
	Counts, Sizes map[string]uint64
	// Consumers are all of the stream, read only where a decision needs them.
	Consumers []*jetstream.ConsumerInfo
	// OtherStreams are names of streams that are not ours.
	OtherStreams []string
	// Quiet: the closed stream is empty, and stays so. One server has stored a barrier last.
	// Several servers were empty in two reads far apart, with no event in between.
	Quiet bool
	// Dangling: for minutes, the stream has held events that no consumer has to deliver.
	Dangling bool
	// StaleCertificate: a server presents a certificate that is not the newest.
	StaleCertificate bool
}

// Holders are the Subscriptions for which events wait, of one subject if that is not empty.
func (n NATS) Holders(subject string) []stream.Holder {
	return stream.Holders(n.Stream.State, n.Consumers, subject, n.Counts, n.Sizes)
}

// ForeignStreams are names of streams that the operator did not create. One of them may have the
// name of ours.
func (n NATS) ForeignStreams() []string {
	names := slices.Clone(n.OtherStreams)
	for _, info := range []*jetstream.StreamInfo{n.DeadLetters, n.Stream} {
		if info != nil && !stream.Ours(info.Config) {
			names = append(names, info.Config.Name)
		}
	}
	return names
}

// Available tells whether NATS stores what is published.
func (w *World) Available() bool {
	return w.NATS.Connected && w.NATS.Stream != nil && stream.Open(w.NATS.Stream.Config)
}
