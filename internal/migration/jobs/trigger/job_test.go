package trigger

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/view"
)

func TestValidate(t *testing.T) {
	if err := New().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for reason, tc := range map[string]struct {
		edit func(*Job)
		flag string
	}{
		"no wait for events at all":         {func(j *Job) { j.options.drainTimeout = 0 }, ""},
		"a negative wait":                   {func(j *Job) { j.options.drainTimeout = -time.Second }, "--drain-timeout"},
		"a negative observation":            {func(j *Job) { j.options.observePublishers = -time.Second }, "--observe-publishers"},
		"a policy that does not exist":      {func(j *Job) { j.options.legacyTraffic = "drop" }, "--legacy-traffic"},
		"ignoring events on the old path":   {func(j *Job) { j.options.legacyTraffic = ignore }, ""},
		"an address by http":                {func(j *Job) { j.natsURL = "http://nats:8222" }, ""},
		"an address by https":               {func(j *Job) { j.natsURL = "https://nats:8222" }, ""},
		"an address by something else":      {func(j *Job) { j.natsURL = "nats://nats:4222" }, "--nats-monitoring-url"},
		"an address without a host":         {func(j *Job) { j.natsURL = "http:///channelsz" }, "--nats-monitoring-url"},
		"an address that cannot be read":    {func(j *Job) { j.natsURL = "http://[::1" }, "--nats-monitoring-url"},
		"no time to become ready":           {func(j *Job) { j.readyTimeout = 0 }, "--ready-timeout"},
		"a namespace that cannot be a name": {func(j *Job) { j.options.integrationNamespace = "Kyma" }, "--integration-namespace"},
	} {
		j := New()
		tc.edit(j)
		err := j.Validate()
		if (err != nil) != (tc.flag != "") || err != nil && !strings.Contains(err.Error(), tc.flag) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

// TestAwait: what is waited for after a change, and for how long.
func TestAwait(t *testing.T) {
	j := New()
	k := assumedKinds()
	for _, tc := range []struct {
		reason string
		ch     migration.Change
		text   string
		limit  time.Duration
	}{
		{"a created Trigger", migration.Change{Verb: migration.Create, Ref: k.trigger.Ref("shop", "t")}, "Trigger shop/t to be ready", j.readyTimeout},
		{"one that exists", migration.Change{Verb: migration.Await, Ref: k.trigger.Ref("shop", "t")}, "Trigger shop/t to be ready", j.readyTimeout},
		{"a Broker that exists", migration.Change{Verb: migration.Await, Ref: k.broker.Ref("shop", kyma.DefaultBroker)}, "Broker shop/default to be ready", j.readyTimeout},
		{"the Broker of a labelled namespace", migration.Change{Verb: migration.Patch, Ref: migration.Ref{Resource: namespaces, Name: "shop"}}, "Broker shop/default to be ready", j.readyTimeout},
		{"a deletion is awaited by the engine", migration.Change{Verb: migration.Delete, Ref: k.trigger.Ref("shop", "t")}, "", 0},
		{"a Trigger that follows its Subscription", migration.Change{Verb: migration.Patch, Ref: k.trigger.Ref("shop", "t")}, "Trigger shop/t to be ready", j.readyTimeout},
		{"a finalizer is off at once", migration.Change{Verb: migration.Patch, Ref: k.subscription.Ref("shop", "s")}, "", 0},
	} {
		got := j.Await(&tc.ch)
		if tc.text == "" {
			if got != nil {
				t.Errorf("%s: %+v", tc.reason, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Text != tc.text || got[0].Timeout != tc.limit {
			t.Errorf("%s: %+v", tc.reason, got)
		}
	}
}

// TestReady: how a Trigger stands while it is awaited, with the hint that helps.
func TestReady(t *testing.T) {
	k := assumedKinds()
	ref := k.trigger.Ref("shop", "t")
	stands := func(verb migration.Verb, obj *unstructured.Unstructured) migration.Status {
		v := view.Of{}
		if obj != nil {
			v = append(v, obj)
		}
		return ready(&migration.Change{Verb: verb, Ref: ref}, ref.Subject()).Eval(v)
	}
	not := func(message string) *unstructured.Unstructured {
		return obj("eventing.knative.dev/v1", "Trigger", "shop", "t", map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Ready", "status": "False", "reason": "NotSubscribed", "message": message},
		}}})
	}
	for _, tc := range []struct {
		reason string
		got    migration.Status
		state  migration.State
		hint   string
	}{
		{"it is ready", stands(migration.Create, isReady(obj("eventing.knative.dev/v1", "Trigger", "shop", "t", nil))), migration.Met, ""},
		{"the view does not show yet what was created", stands(migration.Create, nil), migration.Pending, ""},
		{"nobody has created it", stands(migration.Await, nil), migration.Pending, "logs deployment/eventing-controller"},
		{"it is not ready", stands(migration.Await, not("the Broker is not there")), migration.Pending, "describe"},
		{"it is not ready, and a rollback will delete it", stands(migration.Create, not("the Broker is not there")), migration.Pending, "kubectl -n shop get events"},
		{"its Knative Subscription hangs in its deletion", stands(migration.Create, not("object is being deleted: subscriptions")), migration.Pending, "get subscriptions.messaging.knative.dev -l eventing.knative.dev/trigger=t"},
	} {
		if tc.got.State != tc.state || !strings.Contains(tc.got.Command, tc.hint) || tc.hint != "" && tc.got.Command == "" {
			t.Errorf("%s: %+v", tc.reason, tc.got)
		}
		if tc.hint == "describe" && strings.Contains(tc.got.Command, "-l eventing.knative.dev/trigger") {
			t.Errorf("%s: %s", tc.reason, tc.got.Command)
		}
	}
}
