package fleet

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
)

// sinkReport is a sighting on its way. Times are milliseconds before it was sent, since clocks
// differ; nil is no time.
type sinkReport struct {
	Subscription  types.NamespacedName `json:"subscription"`
	Settings      uint32               `json:"settings"`
	Taken         *int64               `json:"taken,omitempty"`
	Failed        *int64               `json:"failed,omitempty"`
	Since         *int64               `json:"since,omitempty"`
	Next          *int64               `json:"next,omitempty"`
	Problem       string               `json:"problem,omitempty"`
	Blocking      string               `json:"blocking,omitempty"`
	BlockingSince *int64               `json:"blockingSince,omitempty"`
	Blocked       *int64               `json:"blocked,omitempty"`
	Letter        *int64               `json:"letter,omitempty"`
	Posted        *int64               `json:"posted,omitempty"`
	Known         int64                `json:"known,omitempty"`
	Repeating     int64                `json:"repeating,omitempty"`
	Oldest        *int64               `json:"oldest,omitempty"`
}

func reportOf(key types.NamespacedName, s delivery.Seen, settings uint32, now time.Time) sinkReport {
	ago := func(at time.Time) *int64 {
		if at.IsZero() {
			return nil
		}
		ms := now.Sub(at).Milliseconds()
		return &ms
	}
	h := s.Health
	return sinkReport{
		Subscription: key, Settings: settings,
		Taken: ago(h.Taken), Failed: ago(h.Failed), Since: ago(h.Since), Next: ago(h.Next), Problem: h.Problem,
		Blocking: h.Blocking.ID, BlockingSince: ago(h.Blocking.Since), Blocked: ago(h.Blocked), Letter: ago(h.Letter), Posted: ago(h.Posted),
		Known: s.Known, Repeating: s.Repeating, Oldest: ago(s.Oldest),
	}
}

func (r *sinkReport) sighting(now time.Time) sighting {
	at := func(ago *int64) (at time.Time) {
		if ago != nil {
			at = now.Add(-time.Duration(*ago) * time.Millisecond)
		}
		return at
	}
	return sighting{settings: r.Settings, seen: delivery.Seen{
		Health: health.Record{
			Taken: at(r.Taken), Failed: at(r.Failed), Since: at(r.Since), Next: at(r.Next), Problem: r.Problem,
			Blocking: health.Blocking{ID: r.Blocking, Since: at(r.BlockingSince)}, Blocked: at(r.Blocked), Letter: at(r.Letter), Posted: at(r.Posted),
		},
		Known: r.Known, Repeating: r.Repeating, Oldest: at(r.Oldest),
	}}
}
