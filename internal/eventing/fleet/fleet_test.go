package fleet

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
)

var (
	began  = time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	orders = types.NamespacedName{Namespace: "shop", Name: "orders"}
)

// TestPart: the parts of all processes are the whole, and what cannot be divided goes to each of
// them in turn.
func TestPart(t *testing.T) {
	members := []string{"a", "b", "c"}
	more := map[string]int{}
	for i := range 300 {
		key := types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("s-%d", i)}
		for _, all := range []int{2, 3, 7, 10, 100} {
			sum := 0
			for _, run := range members {
				is := part(members, run, key, all)
				if is < all/3 || is > all/3+1 {
					t.Fatalf("%d of %d", is, all)
				}
				if all == 7 {
					more[run] += is - 2
				}
				sum += is
			}
			if sum != all {
				t.Fatalf("%s: the parts are %d of %d", key, sum, all)
			}
		}
		for _, run := range members {
			if is := part(members, run, key, 1); is != 1 {
				t.Fatalf("one at a time is what NATS bounds: %d", is)
			}
		}
	}
	for _, run := range members {
		if more[run] < 60 || more[run] > 140 {
			t.Errorf("%s has one more for %d of 300 Subscriptions", run, more[run])
		}
	}
	if is := part(members[:1], "a", orders, 10); is != 10 {
		t.Errorf("alone: %d", is)
	}
}

// TestSinkReport: what a process has seen is the same at another one, whose clock differs.
func TestSinkReport(t *testing.T) {
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	seen := delivery.Seen{
		Health: health.Record{
			Taken: at(-9), Failed: at(-1), Since: at(-5), Next: at(7), Problem: "the sink answers 503",
			Blocking: health.Blocking{ID: "7", Since: at(-4)}, Blocked: at(-3), Letter: at(-2), Posted: at(-6),
		},
		Known: 5, Repeating: 3, Oldest: at(-100),
	}
	for _, is := range []delivery.Seen{seen, {}, {Health: health.Record{Taken: at(-1)}}} {
		raw, err := json.Marshal(reportOf(orders, is, 17, began))
		var report sinkReport
		if err == nil {
			err = json.Unmarshal(raw, &report)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := report.sighting(began); report.Subscription != orders || got.settings != 17 || !cmp.Equal(got.seen, is) {
			t.Errorf("%s\n%s", raw, cmp.Diff(is, got.seen))
		}
		later := began.Add(time.Hour)
		if got := report.sighting(later).seen.Health.Taken; !is.Health.Taken.IsZero() && later.Sub(got) != began.Sub(is.Health.Taken) {
			t.Errorf("%s before now", later.Sub(got))
		}
	}
}
