package httpsource

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/view"
)

func identified(id string, st migration.Status) migration.Status {
	st.ID = id
	return st
}

func TestReadiness(t *testing.T) {
	const (
		logs     = "kubectl -n kyma-system logs deployment/event-sources-controller-manager"
		describe = "kubectl -n kyma-integration describe "
		itsLog   = "The log of its controller says why it does not create it."
		going    = "Wait until it is gone. If it stays, a finalizer holds it."
		former   = "Wait until it is gone. If it stays, check that kube-controller-manager runs."
		nats     = "The usual cause is NATS Streaming or its provisioner."
		revision = "If an old revision blocks it, delete the Service. Its controller creates a new one."
	)
	pending := func(message, note, command string) migration.Status {
		return migration.Status{Message: message, Note: note, Command: command}
	}
	met := migration.Status{State: migration.Met}
	type list = []*unstructured.Unstructured
	cases := map[string]struct {
		reason  string
		objects list
		want    migration.Status
	}{
		"AllReady": {
			reason:  "Channel, adapter and HTTPSource are ready: events can come.",
			objects: list{source("a"), channel("a"), service("a")},
			want:    met,
		},
		"NeverObserves": {
			reason:  "A controller that sets no observedGeneration is believed.",
			objects: list{source("a", set(int64(7), "metadata", "generation")), channel("a", unset("status", "observedGeneration")), service("a")},
			want:    met,
		},
		"ChannelOfNobody": {
			reason:  "A Channel of an existing HTTPSource that lost its owner reference works all the same.",
			objects: list{source("a"), channel("a", unset("metadata", "ownerReferences")), service("a")},
			want:    met,
		},
		"OnlyCreated": {
			reason:  "Right after the creation there is nothing else.",
			objects: list{source("a", unset("status"))},
			want:    pending("Channel kyma-integration/a does not exist; HTTPSource kyma-integration/a has no status yet", itsLog, logs),
		},
		"ChannelRefused": {
			reason:  "What the controller says about its failure is repeated.",
			objects: list{source("a", says("False", "SinkNotFound", "no sink"))},
			want:    pending("Channel kyma-integration/a does not exist; HTTPSource kyma-integration/a is not ready: SinkNotFound: no sink", itsLog, logs),
		},
		"AdapterWithoutChannel": {
			reason:  "The HTTPSource claims to be ready: it is stale, the adapter sends to nowhere.",
			objects: list{source("a"), service("a")},
			// A finding of its own: reports say once for all of one ID what to do, and events are
			// not lost where there is no adapter.
			want: identified("adapter-without-channel", pending("adapter without a channel: Service kyma-integration/a exists, Channel kyma-integration/a does not"+
				"; HTTPSource kyma-integration/a claims to be ready, which is stale", "Events are lost. The log says why it is not created.", logs)),
		},
		"ChannelNotReady": {
			reason:  "The Channel is looked at itself, with its last reason.",
			objects: list{source("a"), channel("a", says("False", "NotAddressable", "")), service("a")},
			want:    pending("Channel kyma-integration/a is not ready: NotAddressable", nats, describe+"channel.messaging.knative.dev/a"),
		},
		"ChannelStale": {
			reason:  "Ready=True of an earlier generation is not ready.",
			objects: list{source("a"), channel("a", generation(2, 1)), service("a")},
			want:    pending("Channel kyma-integration/a has changed, and its controller has not caught up", nats, describe+"channel.messaging.knative.dev/a"),
		},
		"ChannelWithoutAddress": {
			reason:  "The adapter sends to the address.",
			objects: list{source("a"), channel("a", unset("status", "address")), service("a")},
			want:    pending("Channel kyma-integration/a has no address", nats, describe+"channel.messaging.knative.dev/a"),
		},
		"ChannelGoing": {
			reason:  "A Channel that is being deleted is as good as gone.",
			objects: list{source("a"), channel("a", deleting()), service("a")},
			want:    pending("Channel kyma-integration/a is being deleted", going, describe+"channel.messaging.knative.dev/a"),
		},
		"ChannelOfEarlierSource": {
			reason: "A ready Channel with the owner UID of an HTTPSource that is gone will be garbage-collected.",
			objects: list{source("a"), channel("a", ownedBy("sources.kyma-project.io/v1alpha1", "HTTPSource", "a", "uid-before")),
				service("a")},
			want: pending("Channel kyma-integration/a belongs to an earlier HTTPSource and is about to be garbage-collected",
				former, describe+"channel.messaging.knative.dev/a"),
		},
		"NoAdapter": {
			reason:  "The Channel came first; the adapter is made when it has an address.",
			objects: list{source("a", says("Unknown", "", "")), channel("a")},
			want: pending("adapter Service kyma-integration/a does not exist; HTTPSource kyma-integration/a is not ready",
				itsLog, logs),
		},
		"AdapterNotReady": {
			reason:  "A ready Channel without a ready adapter takes no events.",
			objects: list{source("a"), channel("a"), service("a", says("Unknown", "RevisionMissing", "deploying"))},
			want: pending("adapter Service kyma-integration/a is not ready: RevisionMissing: deploying",
				revision, describe+"service.serving.knative.dev/a"),
		},
		"AdapterWithoutStatus": {
			reason:  "A new adapter has no condition.",
			objects: list{source("a"), channel("a"), service("a", unset("status"))},
			want:    pending("adapter Service kyma-integration/a has no status yet", revision, describe+"service.serving.knative.dev/a"),
		},
		"SourceNotReady": {
			reason:  "Everything under it is ready, but the HTTPSource itself says no.",
			objects: list{source("a", says("False", "ServiceNotReady", "")), channel("a"), service("a")},
			want: pending("HTTPSource kyma-integration/a is not ready: ServiceNotReady",
				"The log of its controller says what is missing.", logs),
		},
		"SourceGoing": {
			reason:  "An HTTPSource that is being deleted never becomes ready.",
			objects: list{source("a", deleting()), channel("a"), service("a")},
			want: migration.Status{State: migration.Failed, Message: "HTTPSource kyma-integration/a is being deleted",
				Note: "Wait until it is gone, and run again. If it stays, a finalizer holds it.", Command: "kubectl -n kyma-integration wait httpsource.sources.kyma-project.io/a --for=delete"},
		},
	}
	k := assumedKinds()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ch := &migration.Change{Verb: migration.Await, Ref: k.httpSource.Ref(namespace, "a")}
			if diff := cmp.Diff(tc.want, sourceReady(ch).Eval(view.Of(tc.objects))); diff != "" {
				t.Errorf("%s\nEval(): -want +got:\n%s", tc.reason, diff)
			}
			created := sourceReady(&migration.Change{Verb: migration.Create, Ref: k.httpSource.Ref(namespace, "a")}).Eval(view.Of(tc.objects))
			if len(tc.objects) > 0 && created.State != migration.Met && created.Command != logs && created.Command != migration.EventsIn(namespace) {
				t.Errorf("%s\nA rollback deletes the HTTPSource, and then this fails: %s", tc.reason, created.Command)
			}
			if strings.Contains(created.Note, "delete the Service") {
				t.Errorf("%s\nA rollback deletes the Service: %s", tc.reason, created.Note)
			}
			// Memory is saved without a change of mind.
			for _, obj := range tc.objects {
				trim := trimTo(map[string]migration.Kind{"HTTPSource": k.httpSource, "Channel": k.channel, "Service": k.service}[obj.GetKind()], namespace)
				trim(obj)
				trim(obj) // an object may come from the list and be trimmed again
			}
			if diff := cmp.Diff(tc.want, sourceReady(ch).Eval(view.Of(tc.objects))); diff != "" {
				t.Errorf("%s\nEval() of trimmed objects: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSourceReadyOverTime(t *testing.T) {
	type step struct {
		objects []*unstructured.Unstructured
		want    migration.State
		message string
	}
	notSeen := step{nil, migration.Pending, "HTTPSource kyma-integration/a is not visible yet"}
	gone := step{nil, migration.Failed, "HTTPSource kyma-integration/a was deleted meanwhile"}
	there := step{[]*unstructured.Unstructured{source("a"), channel("a"), service("a")}, migration.Met, ""}
	cases := map[string]struct {
		reason string
		verb   migration.Verb
		steps  []step
	}{
		"CreatedAndLate": {"A watch may lag behind the creation: absence is no deletion.", migration.Create, []step{notSeen, notSeen, there}},
		"CreatedAndGone": {"Once it was seen, absence is deletion, and the wait ends.", migration.Create, []step{notSeen, there, gone}},
		"Existing":       {"What exists when the plan is made is deleted if it is absent.", migration.Await, []step{gone}},
	}
	k := assumedKinds()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := sourceReady(&migration.Change{Verb: tc.verb, Ref: k.httpSource.Ref(namespace, "a")})
			for i, s := range tc.steps {
				got := c.Eval(view.Of(s.objects))
				if got.State != s.want || got.Message != s.message {
					t.Errorf("%s\nstep %d: got state %d %q, want %d %q", tc.reason, i, got.State, got.Message, s.want, s.message)
				}
			}
		})
	}
}

// TestControllerDown: a wait for what only a controller at 0 replicas makes says so. Its log, which
// the advice was, does not exist.
func TestControllerDown(t *testing.T) {
	k := assumedKinds()
	waits := map[string]migration.Condition{
		"created": sourceReady(&migration.Change{Verb: migration.Create, Ref: k.httpSource.Ref(namespace, "a")}),
		"adapter": adapterHasChannel(&migration.Change{Verb: migration.Await, Ref: k.service.Ref(namespace, "a")}),
	}
	deployment := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "kyma-system", "name": "event-sources-controller-manager"}, "spec": spec,
		}}
	}
	const says = "; its controller, Deployment kyma-system/event-sources-controller-manager, has 0 replicas"
	for name, c := range waits {
		for reason, tc := range map[string]struct {
			objects []*unstructured.Unstructured
			want    bool
		}{
			"at 0":      {[]*unstructured.Unstructured{source("a"), service("a"), deployment(map[string]any{"replicas": int64(0)})}, true},
			"running":   {[]*unstructured.Unstructured{source("a"), service("a"), deployment(map[string]any{"replicas": int64(1)})}, false},
			"defaulted": {[]*unstructured.Unstructured{source("a"), service("a"), deployment(map[string]any{})}, false},
			"unknown":   {[]*unstructured.Unstructured{source("a"), service("a")}, false},
		} {
			st := c.Eval(view.Of(tc.objects))
			down := strings.HasSuffix(st.Message, says) && st.ID == "event-sources-controller-down" &&
				st.Command == "kubectl -n kyma-system scale deployment/event-sources-controller-manager --replicas=1" && strings.Contains(st.Note, "Scale it up")
			if down != tc.want || st.State != migration.Pending {
				t.Errorf("%s, controller %s: %+v", name, reason, st)
			}
		}
		ready := []*unstructured.Unstructured{source("a"), channel("a"), service("a"), deployment(map[string]any{"replicas": int64(0)})}
		if st := c.Eval(view.Of(ready)); st.State != migration.Met {
			t.Errorf("%s: what is ready needs no controller: %+v", name, st)
		}
	}
}

func TestAdapterHasChannel(t *testing.T) {
	cases := map[string]struct {
		reason  string
		objects []*unstructured.Unstructured
		want    migration.State
	}{
		"NoChannel":    {"That is the failure this is about.", []*unstructured.Unstructured{service("a")}, migration.Pending},
		"ChannelGoing": {"A Channel that is being deleted does not count.", []*unstructured.Unstructured{service("a"), channel("a", deleting())}, migration.Pending},
		"ChannelBack":  {"The controller healed it.", []*unstructured.Unstructured{service("a"), channel("a", says("Unknown", "", ""))}, migration.Met},
		"AdapterGone":  {"No adapter, no danger.", nil, migration.Met},
	}
	k := assumedKinds()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := adapterHasChannel(&migration.Change{Verb: migration.Await, Ref: k.service.Ref(namespace, "a")})
			got := c.Eval(view.Of(tc.objects))
			if got.State != tc.want {
				t.Errorf("%s\nstate %d (%s), want %d", tc.reason, got.State, got.Message, tc.want)
			}
			if tc.want == migration.Pending && !strings.HasPrefix(got.Message, "adapter without a channel: Service kyma-integration/a") {
				t.Errorf("%s\nmessage %q does not say what is wrong", tc.reason, got.Message)
			}
		})
	}
}

func TestAwait(t *testing.T) {
	type condition struct {
		Text    string
		On      []string
		Timeout time.Duration
	}
	k := assumedKinds()
	whole := []condition{{
		Text:    "HTTPSource kyma-integration/a, its Channel and its adapter to be ready",
		On:      []string{"HTTPSource kyma-integration/a", "Channel kyma-integration/a", "Service kyma-integration/a", "Deployment kyma-system/event-sources-controller-manager"},
		Timeout: 2 * time.Minute,
	}}
	cases := map[string]struct {
		reason string
		change migration.Change
		want   []condition
	}{
		"Create": {"A new HTTPSource is waited for.", migration.Change{Verb: migration.Create, Ref: k.httpSource.Ref(namespace, "a")}, whole},
		"Await":  {"So is an existing one, known by its reference alone, as out of a journal.", migration.Change{Verb: migration.Await, Ref: k.httpSource.Ref(namespace, "a")}, whole},
		"Adapter": {"An adapter waits for its Channel only.", migration.Change{Verb: migration.Await, Ref: k.service.Ref(namespace, "a")}, []condition{{
			Text:    "Service kyma-integration/a, an adapter, to have a Channel",
			On:      []string{"Service kyma-integration/a", "Channel kyma-integration/a", "Deployment kyma-system/event-sources-controller-manager"},
			Timeout: 2 * time.Minute,
		}}},
		"Delete": {"The engine waits for deletions itself.", migration.Change{Verb: migration.Delete, Ref: k.httpSource.Ref(namespace, "a")}, nil},
		"Other":  {"Other kinds are none of this job's.", migration.Change{Verb: migration.Create, Ref: k.channel.Ref(namespace, "a")}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []condition
			for _, c := range New().Await(&tc.change) {
				on := []string{}
				for _, ref := range c.On {
					on = append(on, ref.String())
					if ref.Group == "" {
						t.Errorf("%s cannot be watched: it has no group", ref)
					}
				}
				got = append(got, condition{c.Text, on, c.Timeout})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nAwait(): -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestAwaitUnserved: a condition names all kinds that it needs, so that the engine fails it if
// one of them is not served, and it says which component installs the kind.
func TestAwaitUnserved(t *testing.T) {
	k := assumedKinds()
	for _, tc := range []struct {
		ref   migration.Ref
		needs []migration.Kind
	}{
		{k.httpSource.Ref(namespace, "a"), []migration.Kind{k.httpSource, k.channel, k.service}},
		{k.service.Ref(namespace, "a"), []migration.Kind{k.service, k.channel}},
	} {
		c := New().Await(&migration.Change{Verb: migration.Await, Ref: tc.ref})[0]
		for _, needs := range tc.needs {
			if !slices.ContainsFunc(c.On, func(s migration.Subject) bool { return s.GroupKind == needs.GroupKind }) {
				t.Errorf("%s does not wait for a %s", tc.ref, needs.Kind)
			}
			if hint := c.Unserved(needs.GroupKind); hint != "Install the component "+kyma.Component(needs.GroupKind)+"." {
				t.Errorf("%s: without %s: %q", tc.ref, needs.Kind, hint)
			}
		}
	}
}
