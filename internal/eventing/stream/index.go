package stream

import "strings"

// index finds the consumers of a subject by their filters: a thousand consumers and as many
// subjects are a million pairs.
type index struct {
	// exact has the consumers of each filter without a wildcard but that for any source, which is
	// the only one of ours.
	exact map[string][]string
	// others are filters with another wildcard, and whose they are.
	others []filterOf
}

type filterOf struct{ filter, consumer string }

func newIndex() *index { return &index{exact: map[string][]string{}} }

// add notes the filters of a consumer; none is all subjects.
func (i *index) add(consumer string, filters []string) {
	if len(filters) == 0 {
		filters = []string{">"}
	}
	for _, filter := range filters {
		rest := filter
		if first, eventType, ok := cutSource(filter); ok {
			rest = first + "." + eventType
		}
		if strings.ContainsAny(rest, "*>") {
			i.others = append(i.others, filterOf{filter, consumer})
		} else {
			i.exact[filter] = append(i.exact[filter], consumer)
		}
	}
}

// of are the consumers of a subject. One with two filters for it may be there twice.
func (i *index) of(subject string) (consumers []string) {
	consumers = append(consumers, i.exact[subject]...)
	if first, eventType, ok := cutSource(subject); ok {
		consumers = append(consumers, i.exact[first+".*."+eventType]...)
	}
	for _, o := range i.others {
		if matches(o.filter, subject) {
			consumers = append(consumers, o.consumer)
		}
	}
	return consumers
}

// cutSource returns what is around the source in a subject or a filter: the first token, and the
// type. ok is false without a type.
func cutSource(subject string) (first, eventType string, ok bool) {
	first, rest, _ := strings.Cut(subject, ".")
	_, eventType, ok = strings.Cut(rest, ".")
	return first, eventType, ok
}
