package trigger

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/eventbus"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func obj(apiVersion, kind, namespace, name string, content map[string]any) *unstructured.Unstructured {
	if content == nil {
		content = map[string]any{}
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func isReady(u *unstructured.Unstructured) *unstructured.Unstructured {
	u.Object["status"] = k8sobject.ReadyStatus
	return u
}

func notReady(u *unstructured.Unstructured) *unstructured.Unstructured {
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "Broken"}}}
	return u
}

func eventService(args string, status map[string]any) *unstructured.Unstructured {
	return obj("apps/v1", "Deployment", "kyma-integration", "commerce-event-service", map[string]any{
		"spec": map[string]any{"replicas": int64(1), "template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "commerce-event-service", "args": []any{args}},
		}}}},
		"status": status,
	})
}

func rolled(edits ...func(map[string]any)) map[string]any {
	status := map[string]any{"observedGeneration": int64(1), "replicas": int64(1), "updatedReplicas": int64(1), "availableReplicas": int64(1)}
	for _, edit := range edits {
		edit(status)
	}
	return status
}

// controllerAt is the subscription-controller with so many replicas, and as many
// pods that are ready.
func controllerAt(n int) eventbus.Controller {
	d := obj("apps/v1", "Deployment", "kyma-system", "event-bus-subscription-controller", map[string]any{
		"spec": map[string]any{"replicas": int64(n)}, "status": map[string]any{"observedGeneration": int64(1)},
	})
	d.SetUID("controller")
	d.SetGeneration(1)
	c := eventbus.Controller{Deployment: d}
	for i := range n {
		c.Pods = append(c.Pods, controllerPod(fmt.Sprintf("pod-%d", i), "True", nil))
	}
	return c
}

func running() eventbus.Controller { return controllerAt(1) }

// controllerPod is one of the subscription-controller; container is what its
// kubelet says besides.
func controllerPod(name, ready string, container map[string]any) *unstructured.Unstructured {
	status := map[string]any{"name": "controller", "restartCount": int64(0)}
	maps.Copy(status, container)
	return obj("v1", "Pod", "kyma-system", name, map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{"type": "Ready", "status": ready}}, "containerStatuses": []any{status},
	}})
}

func count(key string, n int64) func(map[string]any) {
	return func(status map[string]any) { status[key] = n }
}

// linkTo is a Knative Subscription that brings the events of commerce to a URL.
func linkTo(uri string) *unstructured.Unstructured {
	return isReady(obj("messaging.knative.dev/v1", "Subscription", "kyma-integration", "brokersub-1", map[string]any{"spec": map[string]any{
		"channel":    map[string]any{"apiVersion": "messaging.knative.dev/v1", "kind": "Channel", "name": "commerce"},
		"subscriber": map[string]any{"uri": uri},
	}}))
}

func addressed(u *unstructured.Unstructured) *unstructured.Unstructured {
	u.Object["status"] = map[string]any{"conditions": k8sobject.ReadyStatus["conditions"], "address": map[string]any{"url": "http://c"}}
	return u
}

// formerPod is one of the event-service of Kyma 1.10.
func formerPod() *unstructured.Unstructured {
	return obj("v1", "Pod", "kyma-integration", "old", map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "commerce-event-service"}}}})
}

const onMesh = "--eventMeshURL=http://commerce.kyma-integration"

// contracted is a cluster in which everything holds for the one Subscription.
func contracted() *snapshot {
	sub := obj("eventing.kyma-project.io/v1alpha1", "Subscription", "shop", "orders", map[string]any{"spec": map[string]any{
		"endpoint": "http://fn.shop:8080/", "source_id": "commerce", "event_type": "order.created", "event_type_version": "v1",
	}})
	sub.SetUID("sub")
	sub.SetFinalizers([]string{"subscription.finalizers.kyma-project.io"})
	s := corpusSnapshot(sub.Object, []map[string]any{triggerOfContracted().Object})
	s.sources["commerce"] = isReady(obj("sources.kyma-project.io/v1alpha1", "HTTPSource", "kyma-integration", "commerce", map[string]any{"spec": map[string]any{"source": "commerce"}}))
	s.links[pair{"commerce", "shop"}] = []*unstructured.Unstructured{linkTo("http://default-broker.shop")}
	s.mesh = &mesh{
		channels:      map[string]*unstructured.Unstructured{"commerce": addressed(isReady(obj("messaging.knative.dev/v1", "Channel", "kyma-integration", "commerce", nil)))},
		services:      map[string]*unstructured.Unstructured{"commerce": isReady(obj("serving.knative.dev/v1", "Service", "kyma-integration", "commerce", nil))},
		eventServices: map[string]*unstructured.Unstructured{"commerce": eventService(onMesh, rolled())},
		former:        eventpath.FormerPods{},
	}
	s.mesh.eventServices["commerce"].SetGeneration(1)
	link := obj("messaging.knative.dev/v1", "Subscription", "kyma-system", "orders--shop", map[string]any{"spec": map[string]any{
		"channel": map[string]any{"name": "ch"},
	}})
	link.SetUID("link")
	link.SetFinalizers([]string{"subscription.finalizers.kyma-project.io", "subscription-controller"})
	s.bus = &eventbus.Bus{
		Controller: running(),
		Links:      map[string]*unstructured.Unstructured{"orders--shop": link},
		Channels:   map[string]*unstructured.Unstructured{"ch": obj("messaging.knative.dev/v1", "Channel", "kyma-system", "ch", nil)},
		InFlight: eventbus.InFlight{Channels: map[string]eventbus.Channel{"ch.kyma-system": {
			Name: "ch.kyma-system", Messages: 2, FirstSequence: 1, LastSequence: 2, Subscriptions: []eventbus.Durable{{DurableName: "link", LastSent: 2}},
		}}},
	}
	return s
}

// triggerOfContracted is the one Trigger of contracted.
func triggerOfContracted() *unstructured.Unstructured {
	return isReady(obj("eventing.knative.dev/v1", "Trigger", "shop", "t", map[string]any{"spec": map[string]any{
		"filter":     map[string]any{"attributes": map[string]any{"source": "commerce", "type": "order.created", "eventtypeversion": "v1"}},
		"subscriber": map[string]any{"uri": "http://fn.shop:8080/"},
	}}))
}

// TestContract removes one thing after the other: the Subscription goes when, and
// only when, nothing is missing. The cases LinkElsewhere to ChannelAddress and those
// of a URL fail on the commit before: it was deleted.
func TestContract(t *testing.T) {
	source := func(s *snapshot) *unstructured.Unstructured { return s.sources["commerce"] }
	key := pair{"commerce", "shop"}
	gone := []string{"delete Subscription shop/orders"}
	cases := map[string]struct {
		reason  string
		change  func(s *snapshot, o *options)
		want    []string // verb and object
		waits   string   // words of the one deferral
		warning string   // words of the one warning
	}{
		"All":          {reason: "Nothing is missing.", change: func(*snapshot, *options) {}, want: gone},
		"NoHTTPSource": {reason: "The mesh takes no events of the source.", change: func(s *snapshot, _ *options) { delete(s.sources, "commerce") }, waits: "HTTPSource kyma-integration/commerce does not exist"},
		"HTTPSource":   {reason: "It is not ready.", change: func(s *snapshot, _ *options) { notReady(source(s)) }, waits: "HTTPSource kyma-integration/commerce is not ready: Broken"},
		"NoChannel":    {reason: "Its own condition is not trusted.", change: func(s *snapshot, _ *options) { delete(s.mesh.channels, "commerce") }, waits: "there is no Channel kyma-integration/commerce"},
		"Adapter":      {reason: "Its own condition is not trusted.", change: func(s *snapshot, _ *options) { notReady(s.mesh.services["commerce"]) }, waits: "adapter Service kyma-integration/commerce is not ready"},
		"NoLink":       {reason: "The events do not come to the namespace.", change: func(s *snapshot, _ *options) { s.links[key] = nil }, waits: "no Knative Subscription in kyma-integration brings the events of commerce to namespace shop"},
		"TwoLinks":     {reason: "They come twice.", change: func(s *snapshot, _ *options) { s.links[key] = append(s.links[key], s.links[key][0]) }, waits: "each event 2 times"},
		"Link":         {reason: "It is not ready.", change: func(s *snapshot, _ *options) { notReady(s.links[key][0]) }, waits: "brokersub-1 is not ready"},
		"LinkElsewhere": {reason: "It feeds another namespace's Broker.", change: func(s *snapshot, _ *options) {
			s.links[key] = []*unstructured.Unstructured{linkTo("http://default-broker.crm")}
		}, waits: `brokersub-1 brings the events of commerce to "default-broker.crm", not to the Broker of namespace shop`},
		"LinkChannel": {reason: "It takes another source's events.", change: func(s *snapshot, _ *options) {
			k8sobject.MapAt(s.links[key][0].Object, "spec", "channel")["name"] = "crm"
		}, waits: "takes events from Channel kyma-integration/crm"},
		"SourceName": {reason: "No adapter is where the event-service posts.", change: func(s *snapshot, _ *options) { source(s).SetName("other") }, waits: "HTTPSource kyma-integration/other is of source"},
		"ChannelFormer": {reason: "It is about to be deleted.", change: func(s *snapshot, _ *options) {
			yes := true
			s.mesh.channels["commerce"].SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "sources.kyma-project.io/v1alpha1", Kind: "HTTPSource", Name: "commerce", UID: "former", Controller: &yes}})
		}, waits: "belongs to an earlier HTTPSource"},
		"ChannelAddress": {reason: "The adapter has nowhere to send to.", change: func(s *snapshot, _ *options) { isReady(s.mesh.channels["commerce"]) }, waits: "has no address"},
		"Broker":         {reason: "It is waited for first.", change: func(s *snapshot, _ *options) { notReady(s.brokers["shop"]) }, want: []string{"await Broker shop/default", "await Broker shop/default", "await Trigger shop/t", "delete Subscription shop/orders"}},
		"Trigger": {reason: "It is waited for first.", change: func(s *snapshot, _ *options) {
			s.triggers["shop"] = []*existing{existingOf(s.kinds.trigger, notReady(triggerOfContracted()), nil)}
		}, want: []string{"await Trigger shop/t", "delete Subscription shop/orders"}},
		"NoTrigger":      {reason: "It is made first.", change: func(s *snapshot, _ *options) { s.triggers["shop"] = nil }, want: []string{"create Trigger shop/orders-644f7b8cf5ac", "delete Subscription shop/orders"}},
		"NoEventService": {reason: "Nothing says where the events go.", change: func(s *snapshot, _ *options) { delete(s.mesh.eventServices, "commerce") }, waits: "does not exist"},
		"NeverInstalled": {reason: "There never was anything that posts.", change: func(s *snapshot, _ *options) {
			delete(s.mesh.eventServices, "commerce")
			s.applications["commerce"] = application{true}
		}, want: gone},
		"NotSwitched": {reason: "It posts to the Event Bus.", change: func(s *snapshot, _ *options) {
			s.mesh.eventServices["commerce"] = eventService("--sourceId=commerce", rolled())
		}, waits: "does not carry --eventMeshURL, so it posts to the Event Bus"},
		"EmptyURL": {reason: "It posts nowhere.", change: func(s *snapshot, _ *options) {
			s.mesh.eventServices["commerce"] = eventService("--eventMeshURL=", rolled())
		}, waits: "carries an empty --eventMeshURL"},
		"URLOfAnother": {reason: "Its events get another's name.", change: func(s *snapshot, _ *options) {
			s.mesh.eventServices["commerce"] = eventService("--eventMeshURL=http://crm.kyma-integration", rolled())
		}, waits: `posts to the host "crm.kyma-integration"`},
		"URLOfPublisher": {reason: "That is the Event Bus.", change: func(s *snapshot, _ *options) {
			s.mesh.eventServices["commerce"] = eventService("--eventMeshURL=http://event-publish-service.kyma-system:8080/v1/events", rolled())
		}, waits: `posts to the host "event-publish-service.kyma-system:8080"`},
		"NotObserved": {reason: "Its controller has not seen the change.", change: func(s *snapshot, _ *options) { s.mesh.eventServices["commerce"].SetGeneration(2) }, waits: "has not caught up"},
		"NotUpdated": {reason: "The new pod is not there.", change: func(s *snapshot, _ *options) {
			s.mesh.eventServices["commerce"] = eventService(onMesh, rolled(count("updatedReplicas", 0)))
		}, waits: "0 of 1 pods are new"},
		"OldPod": {reason: "An old one is counted still.", change: func(s *snapshot, _ *options) {
			s.mesh.eventServices["commerce"] = eventService(onMesh, rolled(count("replicas", 2)))
		}, waits: "still has 1 of its old pods"},
		"NotAvailable": {reason: "The new one takes nothing yet.", change: func(s *snapshot, _ *options) {
			s.mesh.eventServices["commerce"] = eventService(onMesh, rolled(count("availableReplicas", 0)))
		}, waits: "0 of 1 pods are available"},
		"TerminatingPod": {reason: "It posts until it ends, and no Deployment counts it.", change: func(s *snapshot, _ *options) { s.mesh.former.Add(formerPod()) }, waits: "Pod kyma-integration/old does not carry --eventMeshURL"},
		"PodAlone": {reason: "Its Deployment is gone.", change: func(s *snapshot, _ *options) {
			delete(s.mesh.eventServices, "commerce")
			s.mesh.former.Add(formerPod())
		}, waits: "Pod kyma-integration/old does not carry --eventMeshURL"},
		"InFlight":       {reason: "Events are on the way.", change: func(s *snapshot, _ *options) { s.bus.InFlight.Channels["ch.kyma-system"].Subscriptions[0].LastSent = 1 }, waits: "1 event still in flight to http://fn.shop:8080/ after 2m"},
		"Unreadable":     {reason: "What is not known is not nothing.", change: func(s *snapshot, _ *options) { s.bus.InFlight = eventbus.InFlight{Unreadable: "forbidden"} }, waits: "it: forbidden"},
		"NoDurable":      {reason: "What is not found is not nothing.", change: func(s *snapshot, _ *options) { s.bus.InFlight.Channels = nil }, waits: "it: NATS Streaming has no channel ch.kyma-system"},
		"NeverActivated": {reason: "The Event Bus delivers nothing to it.", change: func(s *snapshot, _ *options) { s.bus.Links = nil; s.bus.InFlight = eventbus.InFlight{Unreadable: "x"} }, want: gone},
		"IgnoreInFlight": {reason: "The user drops them.", change: func(s *snapshot, o *options) {
			o.legacyTraffic = ignore
			s.bus.InFlight.Channels["ch.kyma-system"].Subscriptions[0].LastSent = 0
		}, want: gone, warning: "it drops 2 events on the way to http://fn.shop:8080/"},
		"IgnoreUnknown": {reason: "The user drops whatever there is.", change: func(s *snapshot, o *options) {
			o.legacyTraffic = ignore
			s.bus.InFlight = eventbus.InFlight{Unreadable: "x"}
		}, want: gone, warning: "it drops an unknown number of events (x)"},
		"IgnoreNothing":   {reason: "There is nothing to drop.", change: func(_ *snapshot, o *options) { o.legacyTraffic = ignore }, want: gone},
		"IgnoreNeedsMesh": {reason: "Without the mesh, all later events would be lost, too.", change: func(s *snapshot, o *options) { o.legacyTraffic = ignore; notReady(source(s)) }, waits: "is not ready"},
		"ForeignFinalizer": {
			reason: "It is named, and left to its owner.",
			change: func(s *snapshot, _ *options) { s.subscriptions[0].SetFinalizers([]string{"example.com/audit"}) }, want: gone,
			warning: "example.com/audit (a controller of example.com)",
		},
		"WithoutController": {
			reason: "The job does what it would have done.", change: func(s *snapshot, _ *options) { s.bus.Controller = controllerAt(0) },
			want: []string{
				"patch Subscription kyma-system/orders--shop", "delete Subscription kyma-system/orders--shop",
				"patch Subscription shop/orders", "delete Subscription shop/orders",
				"await Channel kyma-system/ch", "delete Channel kyma-system/ch",
			},
		},
		"WithoutControllerShared": {
			reason: "A Channel with another subscriber stays.",
			change: func(s *snapshot, _ *options) {
				s.bus.Controller = controllerAt(0)
				s.bus.Links["other"] = obj("messaging.knative.dev/v1", "Subscription", "kyma-system", "other", map[string]any{"spec": map[string]any{"channel": map[string]any{"name": "ch"}}})
			},
			want: []string{
				"patch Subscription kyma-system/orders--shop", "delete Subscription kyma-system/orders--shop",
				"patch Subscription shop/orders", "delete Subscription shop/orders",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, o := contracted(), New().options
			// Shared between snapshots of other tests otherwise.
			for ns := range s.brokers {
				s.brokers[ns] = isReady(obj("eventing.knative.dev/v1", "Broker", ns, "default", nil))
			}
			tc.change(s, &o)
			d := newDecision(s, o)
			d.expand()
			plan := d.contract(d.candidates())
			var got, deferred, warnings []string
			for _, u := range plan.Units {
				for _, ch := range u.Changes {
					got = append(got, string(ch.Verb)+" "+ch.Ref.String())
				}
			}
			for _, f := range plan.Findings {
				switch f.Severity {
				case migration.Deferred:
					deferred = append(deferred, f.Problem)
				case migration.Warning:
					warnings = append(warnings, f.Problem)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s changes (-want +got):\n%s", tc.reason, diff)
			}
			for what, pair := range map[string][2]any{"deferral": {tc.waits, deferred}, "warning": {tc.warning, warnings}} {
				words, all := pair[0].(string), pair[1].([]string)
				if words == "" && len(all) > 0 || words != "" && (len(all) != 1 || !strings.Contains(all[0], words)) {
					t.Errorf("%s %s: want the words %q, got %q", tc.reason, what, words, all)
				}
			}
		})
	}
}
