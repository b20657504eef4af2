package stream

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestIndex: the index finds the consumers that Consumes finds.
func TestIndex(t *testing.T) {
	filters := []string{"kyma.a.x", "kyma.*.x", "kyma.*.x.y", "kyma.a.*", "kyma.a.>", "kyma.>", ">", "*.a.x", "kyma.*", "kyma.a", "a", "kyma.=retry.c.=retry", ""}
	subjects := []string{"kyma.a.x", "kyma.b.x", "kyma.a.x.y", "kyma.b.x.y", "kyma.a", "a", "b", "other.a.x", "kyma.=retry.c.=retry", "kyma.=retry.d.=retry"}
	var consumers []*jetstream.ConsumerInfo
	for _, filter := range filters {
		consumers = append(consumers, &jetstream.ConsumerInfo{Name: "of " + filter, Config: jetstream.ConsumerConfig{FilterSubject: filter}})
	}
	i := indexOf(consumers)
	for _, subject := range subjects {
		var want []string
		for _, filter := range filters {
			if filter == "" || matches(filter, subject) {
				want = append(want, "of "+filter)
			}
		}
		var got []string
		for _, c := range i.of(subject) {
			got = append(got, c.Name)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", subject, got, want)
		}
	}
}
