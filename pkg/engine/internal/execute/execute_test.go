package execute

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestNextBatch(t *testing.T) {
	unit := func(n int) migration.Unit { return migration.Unit{Changes: make([]migration.Change, n)} }
	for name, tc := range map[string]struct {
		reason string
		sizes  []int
		want   []int
	}{
		"One":   {"few units are one batch", []int{1, 1, 1}, []int{3}},
		"Full":  {"a batch covers up to 100 changes", []int{60, 40, 1}, []int{2, 1}},
		"Large": {"a unit is never split", []int{150, 1}, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var units []migration.Unit
			for _, n := range tc.sizes {
				units = append(units, unit(n))
			}
			var got []int
			for len(units) > 0 {
				got = append(got, len(nextBatch(&units)))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
