package stream

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Holder is a Subscription, how many events wait for it, and about how many bytes they take.
type Holder struct {
	Subscription   string
	waiting, bytes uint64
}

// Holders are the Subscriptions for which events wait, of one subject if that is not empty, those
// with the most bytes first. counts are the events of each subject, and sizes how large one of them
// is, for some. NATS counts the bytes of all events together, and not those of one consumer:
// docs/decisions/1362-the-space-of-nats.md.
func Holders(of jetstream.StreamState, consumers []*jetstream.ConsumerInfo, subject string, counts, sizes map[string]uint64) (all []Holder) {
	events, bytes, known := of.Msgs, of.Bytes, uint64(0)
	for subject, size := range sizes {
		events, known = events-min(counts[subject], events), known+counts[subject]*size
	}
	// What the subjects whose size is known do not take is that of the others. Without others, all
	// of it is theirs.
	scale, rest := 1.0, float64(bytes-min(known, bytes))/float64(max(events, 1))
	if known > 0 && (events == 0 || known > bytes) {
		scale = float64(bytes) / float64(known)
	}
	for _, c := range consumers {
		waiting := c.NumPending + uint64(max(c.NumAckPending, 0))
		if waiting == 0 || subject != "" && !Consumes(c.Config, subject) {
			continue
		}
		var n, sum float64
		add := func(subject string) {
			size, count := rest, float64(counts[subject])
			if is, known := sizes[subject]; known {
				size = float64(is) * scale
			}
			n, sum = n+count, sum+count*size
		}
		for _, filter := range Filters(c.Config) {
			if !strings.ContainsAny(filter, "*>") {
				add(filter) // most are so, and there may be a thousand consumers and ten thousand subjects
				continue
			}
			for subject := range counts {
				if matches(filter, subject) {
					add(subject)
				}
			}
		}
		if n == 0 {
			n, sum = float64(of.Msgs), float64(bytes)
		}
		all = append(all, Holder{c.Config.Metadata[SubscriptionKey], waiting, uint64(float64(waiting) * sum / max(n, 1))})
	}
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.Subscription, b.Subscription))
	})
	return all
}

// NameHolders names the three with the most bytes.
func NameHolders(holders []Holder) string {
	var texts []string
	for _, h := range holders[:min(3, len(holders))] {
		texts = append(texts, fmt.Sprintf("%s (%d events, about %s)", h.Subscription, h.waiting, amount(h.bytes)))
	}
	if len(texts) == 0 {
		return ""
	}
	return "Most of the space is taken by events that wait for " + strings.Join(texts, ", ") + "."
}

// amount is a number of bytes for people.
func amount(bytes uint64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%d KiB", (bytes+1<<10-1)>>10)
	}
	return fmt.Sprintf("%d MiB", (bytes+1<<19)>>20)
}

// Foreign are names of consumers that no Subscription has.
func Foreign(consumers []*jetstream.ConsumerInfo) (names []string) {
	for _, c := range consumers {
		if c.Config.Metadata[SubscriptionKey] == "" {
			names = append(names, c.Name)
		}
	}
	return names
}
