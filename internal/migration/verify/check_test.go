package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/eventmap"
	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
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
			want: left + ": is not deleted yet, although its Trigger shop/t and the Broker are ready",
		},
		"NotReady": {
			reason: "no event arrives", triggers: []string{trigger("name: t", pendingStatus)}, broker: broker(readyStatus),
			want: left + ": is not deleted yet; its Trigger shop/t is not ready: NotSubscribed: wait",
		},
		"Terminating": {
			reason: "soon no event arrives", triggers: []string{trigger(`name: t, deletionTimestamp: "2020-04-01T22:15:00Z"`, readyStatus)}, broker: broker(readyStatus),
			want: left + ": is not deleted yet; its Trigger shop/t is being deleted",
		},
		"NoBroker": {
			reason: "its condition is from before", triggers: []string{trigger("name: t", readyStatus)},
			want: left + `: is not deleted yet; its Trigger shop/t has no Broker "default"`,
		},
		"BrokerNotReady": {
			reason: "nothing is let in", triggers: []string{trigger("name: t", readyStatus)}, broker: broker(pendingStatus),
			want: left + `: is not deleted yet; its Trigger shop/t is ready, but the Broker "default" is not`,
		},
		"OneOfTwo": {
			reason: "one that is ready is enough", triggers: []string{trigger("name: a", pendingStatus), trigger("name: b", readyStatus), trigger("name: c", pendingStatus)}, broker: broker(readyStatus),
			want: left + ": is not deleted yet, although its Trigger shop/b and the Broker are ready",
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
				s.add(t, knative.Trigger.Group, text)
			}
			if tc.broker != "" {
				s.add(t, knative.Broker.Group, tc.broker)
			}
			in, err := inventory.Read(t.Context(), s, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range Check(in, nil, nil, time.Now()) {
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

// TestOddObjects: an object of which a part cannot be read hides no finding about another one.
func TestOddObjects(t *testing.T) {
	kinds := []schema.GroupKind{
		kyma.Application, kyma.EventActivation, kyma.Subscription, kyma.HTTPSource, kyma.Channel, kyma.ChannelSubscription, knative.Broker, knative.Trigger, kyma.Service,
		kyma.ServiceInstance, kyma.ServiceBinding, kyma.ServiceBindingUsage,
		{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, {Group: "apps", Kind: "Deployment"}, {Kind: "Pod"}, {Group: "batch", Kind: "Job"}, {Kind: "Namespace"},
	}
	findings := func(odd bool) []string {
		s := stored{}
		s.add(t, kyma.Application.Group, `{kind: Application, metadata: {name: commerce}}`)
		s.add(t, "", `{kind: Namespace, metadata: {name: shop}}`)
		s.add(t, kyma.Subscription.Group, `{kind: Subscription, metadata: {namespace: shop, name: s}, spec: {source_id: commerce, event_type: paid, event_type_version: v1, endpoint: "http://orders.shop:80/"}}`)
		if odd {
			for _, gk := range kinds {
				for i, field := range []string{"spec: text", "spec: {services: text, source: [5], source_id: 5, filter: text, subscriber: text, template: text}", "spec: [5], data: 5"} {
					for _, namespace := range []string{"shop", kyma.IntegrationNamespace, kyma.SystemNamespace} {
						s.add(t, gk.Group, fmt.Sprintf("{kind: %s, metadata: {namespace: %s, name: a-odd-%d}, %s, status: {conditions: text}}", gk.Kind, namespace, i, field))
					}
				}
			}
		}
		in, err := inventory.Read(t.Context(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if odd && len(eventmap.New(in, "").Flows) == 0 {
			t.Error("the map has no flow")
		}
		var all []string
		for _, f := range Check(in, nil, nil, time.Now()) {
			all = append(all, f.ID+" "+f.Object)
		}
		return all
	}
	with := findings(true)
	for _, f := range findings(false) {
		if !slices.Contains(with, f) {
			t.Errorf("an odd object hides %s", f)
		}
	}
	if !slices.Contains(with, "subscription-without-trigger Subscription shop/s") {
		t.Errorf("the Subscription is not named: %v", with)
	}
}

// TestLeaked fails on the commit before: a Channel was named only once no Kyma
// Subscription was left, and then like one that is used.
func TestLeaked(t *testing.T) {
	const (
		labels  = `labels: {kyma-source-id: commerce, kyma-event-type: paid, kyma-event-type-version: v1}`
		channel = `{kind: Channel, metadata: {namespace: kyma-system, name: paid-x1, ` + labels + `}}`
	)
	link := func(namespace string) string {
		return `{kind: Subscription, metadata: {namespace: ` + namespace + `, name: s--shop}, spec: {channel: {name: paid-x1}}}`
	}
	sub := func(eventType string) string {
		return `{kind: Subscription, metadata: {namespace: shop, name: s}, spec: {source_id: commerce, event_type: ` + eventType + `, event_type_version: v1, endpoint: "http://orders.shop:80/"}}`
	}
	for name, tc := range map[string]struct {
		reason        string
		channel       string
		links, others []string // of Knative, and of Kyma
		want          []string
	}{
		"Leaked":      {"its last two subscribers went at once", channel, nil, nil, []string{"eventbus-leaked"}},
		"OthersLeft":  {"other Subscriptions are left", channel, nil, []string{sub("created")}, []string{"eventbus-leaked"}},
		"Used":        {"somebody subscribes to it", channel, []string{link("kyma-system")}, []string{sub("created")}, nil},
		"New":         {"its Knative Subscription is to come", channel, nil, []string{sub("paid")}, nil},
		"Elsewhere":   {"it is one of the same name in another namespace", channel, []string{link("shop")}, nil, []string{"eventbus-leaked"}},
		"Left":        {"all is there but for the Subscription", channel, []string{link("kyma-system")}, nil, []string{"eventbus-leftovers"}},
		"OptedOut":    {"it is left out", strings.Replace(channel, "labels: {", `labels: {eventmesh-migration.kyma-project.io/skip: "true", `, 1), nil, []string{sub("created")}, nil},
		"Terminating": {"it goes", strings.Replace(channel, "name: paid-x1", `name: paid-x1, deletionTimestamp: "2020-04-01T22:15:00Z"`, 1), nil, []string{sub("created")}, nil},
		"Foreign":     {"the Event Bus did not make it", strings.Replace(channel, "kyma-source-id: commerce, ", "", 1), nil, []string{sub("created")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := stored{}
			s.add(t, kyma.Application.Group, `{kind: Application, metadata: {name: commerce}}`)
			s.add(t, "", `{kind: Namespace, metadata: {name: shop}}`)
			s.add(t, kyma.Channel.Group, tc.channel)
			for _, text := range tc.links {
				s.add(t, kyma.ChannelSubscription.Group, text)
			}
			for _, text := range tc.others {
				s.add(t, kyma.Subscription.Group, text)
			}
			in, err := inventory.Read(t.Context(), s, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range Check(in, nil, nil, time.Now()) {
				if strings.HasPrefix(d.ID, "eventbus-") {
					got = append(got, d.ID)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestOpenRun fails on the commit before: a run that was at work was told as
// interrupted, "run the job again to finish it, or undo it".
func TestOpenRun(t *testing.T) {
	now := time.Date(2020, 4, 1, 22, 15, 0, 0, time.UTC)
	lock := func(age time.Duration) *engine.HeldLock {
		return &engine.HeldLock{Holder: "h", Acquired: now.Add(-time.Hour), Renewed: now.Add(-age), Duration: 30 * time.Second}
	}
	for name, tc := range map[string]struct {
		reason string
		open   bool
		lock   *engine.HeldLock
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
			in, err := inventory.Read(t.Context(), stored{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			kept := &engine.State{Lock: tc.lock, Journals: []engine.StoredJournal{{Job: "j", Run: "r", Open: tc.open}}}
			var got []string
			for _, d := range Check(in, nil, kept, now) {
				got = append(got, d.ID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestAdviceHasNames: names are filled in, or there is no command.
func TestAdviceHasNames(t *testing.T) {
	known := map[string]Entry{}
	for _, e := range Catalog() {
		known[e.ID] = e
		if e.Note == "" && e.Command != "" {
			t.Errorf("%s: a command without a note is never shown", e.ID)
		}
	}
	for _, tc := range []struct{ reason, id, object, want string }{
		{"an object of a namespace", "trigger-not-ready", "Trigger shop/orders", "kubectl -n shop describe triggers.eventing.knative.dev orders"},
		{"an object of the cluster", "broker-missing", "Namespace shop", "kubectl label namespace shop knative-eventing-injection=enabled"},
		{"no object", "broker-missing", "", ""},
		{"a name that a shell would change", "trigger-not-ready", "Trigger shop/a b", "kubectl -n shop describe triggers.eventing.knative.dev 'a b'"},
	} {
		if got := known[tc.id].Advice(tc.object).Command; got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
}
