package stream

import (
	"slices"
	"testing"
)

// TestIndex: the index finds the consumers that Consumes finds.
func TestIndex(t *testing.T) {
	filters := []string{"kyma.a.x", "kyma.*.x", "kyma.*.x.y", "kyma.a.*", "kyma.a.>", "kyma.>", ">", "*.a.x", "kyma.*", "kyma.a", "a", "kyma.=retry.c.=retry", ""}
	subjects := []string{"kyma.a.x", "kyma.b.x", "kyma.a.x.y", "kyma.b.x.y", "kyma.a", "a", "b", "other.a.x", "kyma.=retry.c.=retry", "kyma.=retry.d.=retry"}
	i := newIndex()
	of := func(filter string) []string {
		if filter == "" {
			return nil // all subjects
		}
		return []string{filter}
	}
	for _, filter := range filters {
		i.add("of "+filter, of(filter))
	}
	for _, subject := range subjects {
		var want []string
		for _, filter := range filters {
			if filter == "" || matches(filter, subject) {
				want = append(want, "of "+filter)
			}
		}
		got := i.of(subject)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", subject, got, want)
		}
	}
}
