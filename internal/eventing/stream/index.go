package stream

import (
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// index finds the consumers of a subject by their filters: a thousand consumers and as many
// subjects are a million pairs.
type index struct {
	// exact has the consumers of each filter without a wildcard but that for any source, which is
	// the only one of ours.
	exact map[string][]*jetstream.ConsumerInfo
	// others have another filter, or none, which is all subjects.
	others []*jetstream.ConsumerInfo
}

func indexOf(consumers []*jetstream.ConsumerInfo) *index {
	i := &index{exact: map[string][]*jetstream.ConsumerInfo{}}
	for _, c := range consumers {
		filters := Filters(c.Config)
		if len(filters) == 0 || slices.ContainsFunc(filters, hasAnotherWildcard) {
			i.others = append(i.others, c)
			continue
		}
		for _, filter := range filters {
			i.exact[filter] = append(i.exact[filter], c)
		}
	}
	return i
}

// of are the consumers of a subject. One with two filters for it may be there twice.
func (i *index) of(subject string) (consumers []*jetstream.ConsumerInfo) {
	consumers = append(consumers, i.exact[subject]...)
	if first, eventType, ok := cutSource(subject); ok {
		consumers = append(consumers, i.exact[first+".*."+eventType]...)
	}
	for _, c := range i.others {
		if Consumes(c.Config, subject) {
			consumers = append(consumers, c)
		}
	}
	return consumers
}

// hasAnotherWildcard tells whether a filter has a wildcard that is not for the source.
func hasAnotherWildcard(filter string) bool {
	if first, eventType, ok := cutSource(filter); ok {
		filter = first + "." + eventType
	}
	return strings.ContainsAny(filter, "*>")
}

// cutSource returns what is around the source in a subject or a filter: the first token, and the
// type. ok is false without a type.
func cutSource(subject string) (first, eventType string, ok bool) {
	first, rest, _ := strings.Cut(subject, ".")
	_, eventType, ok = strings.Cut(rest, ".")
	return first, eventType, ok
}
