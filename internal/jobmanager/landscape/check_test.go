package landscape

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration"
)

const (
	readyStatus   = `status: {conditions: [{type: Ready, status: "True"}]}`
	pendingStatus = `status: {conditions: [{type: Ready, status: "False", reason: NotSubscribed, message: wait}]}`
)

// TestSubscriptionLeft fails on the commit before: all of these were told as "its
// Trigger delivers", which was not looked at.
func TestSubscriptionLeft(t *testing.T) {
	const terms = `spec: {broker: default, filter: {attributes: {source: commerce, type: paid, eventtypeversion: v1}}, subscriber: {uri: "http://orders.shop.svc.cluster.local"}}`
	trigger := func(meta, status string) string {
		return `{kind: Trigger, metadata: {namespace: shop, ` + meta + `}, ` + terms + `, ` + status + `}`
	}
	broker := func(status string) string {
		return `{kind: Broker, metadata: {namespace: shop, name: default}, ` + status + `}`
	}
	const left, without = "subscription-left", "subscription-without-trigger"
	for name, tc := range map[string]struct {
		reason   string
		triggers []string
		broker   string
		want     string
	}{
		"Ready": {
			reason: "what a finished migration leaves by mistake", triggers: []string{trigger("name: t", readyStatus)}, broker: broker(readyStatus),
			want: left + ": is still there, although its Trigger shop/t is ready, and its Broker, too",
		},
		"NotReady": {
			reason: "no event arrives", triggers: []string{trigger("name: t", pendingStatus)}, broker: broker(readyStatus),
			want: left + ": is still there; its Trigger shop/t is not ready: NotSubscribed: wait",
		},
		"Terminating": {
			reason: "soon no event arrives", triggers: []string{trigger(`name: t, deletionTimestamp: "2020-04-01T22:15:00Z"`, readyStatus)}, broker: broker(readyStatus),
			want: left + ": is still there; its Trigger shop/t is being deleted",
		},
		"NoBroker": {
			reason: "its condition is from before", triggers: []string{trigger("name: t", readyStatus)},
			want: left + `: is still there; its Trigger shop/t has no Broker "default"`,
		},
		"BrokerNotReady": {
			reason: "nothing is let in", triggers: []string{trigger("name: t", readyStatus)}, broker: broker(pendingStatus),
			want: left + `: is still there; its Trigger shop/t is ready, and the Broker "default" of that is not`,
		},
		"OneOfTwo": {
			reason: "one that is ready is enough", triggers: []string{trigger("name: a", pendingStatus), trigger("name: b", readyStatus), trigger("name: c", pendingStatus)}, broker: broker(readyStatus),
			want: left + ": is still there, although its Trigger shop/b is ready, and its Broker, too",
		},
		"OfOther": {
			reason:   "other terms",
			triggers: []string{`{kind: Trigger, metadata: {namespace: shop, name: t}, spec: {filter: {attributes: {source: commerce, type: created, eventtypeversion: v1}}, subscriber: {uri: "http://orders.shop"}}, ` + readyStatus + `}`},
			broker:   broker(readyStatus),
			want:     without + ": no Trigger has its source, event type, version and endpoint",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stored{}
			s.add(t, kyma.Application.Group, `{kind: Application, metadata: {name: commerce}}`)
			s.add(t, "", `{kind: Namespace, metadata: {name: shop}}`)
			s.add(t, kyma.Subscription.Group, `{kind: Subscription, metadata: {namespace: shop, name: s}, spec: {source_id: commerce, event_type: paid, event_type_version: v1, endpoint: "http://orders.shop:80/"}}`)
			for _, text := range tc.triggers {
				s.add(t, kyma.Trigger.Group, text)
			}
			if tc.broker != "" {
				s.add(t, kyma.Broker.Group, tc.broker)
			}
			l, err := Read(t.Context(), s, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range Check(l, nil, time.Now()) {
				if d.ID == left || d.ID == without {
					got = append(got, d.ID+": "+d.Problem)
				}
			}
			if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestOpenRun fails on the commit before: a run that was at work was told as
// interrupted, "run the job again to finish it, or undo it".
func TestOpenRun(t *testing.T) {
	now := time.Date(2020, 4, 1, 22, 15, 0, 0, time.UTC)
	lock := func(age time.Duration) *migration.HeldLock {
		return &migration.HeldLock{Holder: "h", Acquired: now.Add(-time.Hour), Renewed: now.Add(-age), Duration: 30 * time.Second}
	}
	for name, tc := range map[string]struct {
		reason string
		open   bool
		lock   *migration.HeldLock
		want   []string
	}{
		"Nothing":   {"a finished run", false, nil, nil},
		"Killed":    {"nobody is at work", true, nil, []string{"run-open"}},
		"Running":   {"its process renews the lock", true, lock(10 * time.Second), []string{"run-running"}},
		"Ahead":     {"its clock is ahead of ours", true, lock(-time.Minute), []string{"run-running"}},
		"NotYet":    {"a renewal is late, and the lock not abandoned yet", true, lock(40 * time.Second), []string{"run-open"}},
		"Abandoned": {"its process was killed while it held the lock", true, lock(10 * time.Minute), []string{"run-open", "lock-abandoned"}},
		"Other":     {"a process is at work, and no journal is open", false, lock(time.Second), nil},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Read(t.Context(), stored{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			kept := &migration.Kept{Lock: tc.lock, Journals: []migration.StoredJournal{{Job: "j", Run: "r", Open: tc.open}}}
			var got []string
			for _, d := range Check(l, kept, now) {
				got = append(got, d.ID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
