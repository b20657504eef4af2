package eventpath

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/test/manifest"
)

const (
	ready     = "conditions: [{type: Ready, status: 'True'}]"
	addressed = ready + ", address: {url: 'http://c'}"
	notReady  = "conditions: [{type: Ready, status: 'False', reason: Why, message: because}]"
	deleted   = ", deletionTimestamp: '2020-03-04T00:00:00Z'"
	former    = ", ownerReferences: [{apiVersion: sources.kyma-project.io/v1alpha1, kind: HTTPSource, name: shop, uid: former, controller: true}]"
)

func TestTakesEvents(t *testing.T) {
	made := func(kind, metadata, spec, status string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: g/v1, kind: %s, metadata: {namespace: kyma-integration, name: shop, uid: u%s}, spec: {%s}, status: {%s}}", kind, metadata, spec, status))
	}
	httpSource := func(metadata, status string) *unstructured.Unstructured {
		return made("HTTPSource", metadata, "source: shop", status)
	}
	channel := func(metadata, status string) *unstructured.Unstructured {
		return made("Channel", metadata, "", status)
	}
	service := func(metadata, status string) *unstructured.Unstructured {
		return made("Service", metadata, "", status)
	}
	renamed := httpSource("", ready)
	renamed.SetName("other")
	good := Source{HTTPSource: httpSource("", ready), Channel: channel("", addressed), Adapter: service("", ready)}
	for _, tc := range []struct {
		reason string
		edit   func(*Source)
		want   []string
	}{
		{"all three are ready", func(*Source) {}, nil},
		{"nothing there", func(s *Source) { *s = Source{} }, []string{"httpsource-missing: HTTPSource kyma-integration/shop does not exist"}},
		{"on its way out", func(s *Source) { s.HTTPSource = httpSource(deleted, ready) }, []string{"httpsource-terminating: HTTPSource kyma-integration/shop is being deleted"}},
		{
			"the source under another name: no adapter is where the event-service posts", func(s *Source) { s.HTTPSource = renamed },
			[]string{`httpsource-foreign: HTTPSource kyma-integration/other is of source "shop": the adapter to which the event-service of shop posts needs an HTTPSource with name and source shop`},
		},
		{
			"the name with another source: its adapter says that the events are that one's",
			func(s *Source) { s.HTTPSource = made("HTTPSource", "", "source: crm", ready) },
			[]string{`httpsource-foreign: HTTPSource kyma-integration/shop is of source "crm": the adapter to which the event-service of shop posts needs an HTTPSource with name and source shop`},
		},
		{"no Channel, and a status that is stale", func(s *Source) { s.Channel = nil }, []string{"adapter-without-channel: adapter Service kyma-integration/shop takes events, and there is no Channel kyma-integration/shop to send them to"}},
		{"neither child", func(s *Source) { s.Channel, s.Adapter = nil, nil }, []string{"channel-missing: Channel kyma-integration/shop does not exist", "adapter-missing: adapter Service kyma-integration/shop does not exist"}},
		{"a Channel on its way out", func(s *Source) { s.Channel = channel(deleted, addressed) }, []string{"channel-not-ready: Channel kyma-integration/shop is being deleted"}},
		{"a Channel that is not ready", func(s *Source) { s.Channel = channel("", notReady) }, []string{"channel-not-ready: Channel kyma-integration/shop is not ready: Why: because"}},
		{"a Channel without an address", func(s *Source) { s.Channel = channel("", ready) }, []string{"channel-no-address: Channel kyma-integration/shop has no address"}},
		{"an address as Knative 0.12 gave it", func(s *Source) { s.Channel = channel("", ready+", address: {hostname: c}") }, nil},
		{"a Channel of a former HTTPSource", func(s *Source) { s.Channel = channel(former, addressed) }, []string{"channel-former: Channel kyma-integration/shop belongs to an earlier HTTPSource and is about to be garbage-collected"}},
		{"which the garbage collector has begun to delete", func(s *Source) { s.Channel = channel(former+deleted, addressed) }, []string{"channel-former: Channel kyma-integration/shop belongs to an earlier HTTPSource and is about to be garbage-collected"}},
		{"an adapter of a former HTTPSource", func(s *Source) { s.Adapter = service(former, ready) }, []string{"adapter-not-ready: adapter Service kyma-integration/shop belongs to an earlier HTTPSource and is about to be garbage-collected"}},
		{"no adapter", func(s *Source) { s.Adapter = nil }, []string{"adapter-missing: adapter Service kyma-integration/shop does not exist"}},
		{"an adapter without a status", func(s *Source) { s.Adapter = service("", "") }, []string{"adapter-not-ready: adapter Service kyma-integration/shop has no status yet"}},
		{"its own word", func(s *Source) { s.HTTPSource = httpSource("", notReady) }, []string{"httpsource-not-ready: HTTPSource kyma-integration/shop is not ready: Why: because"}},
	} {
		s := good
		tc.edit(&s)
		s.Name, s.Namespace = "shop", integration
		var got []string
		for _, a := range s.Defects() {
			got = append(got, words(a))
			if a.Note == "" || a.Command == "" {
				t.Errorf("%s: no hint", tc.reason)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
		if s.TakesEvents().OK() != (tc.want == nil) {
			t.Errorf("%s: %+v", tc.reason, s.TakesEvents())
		}
	}
}

func TestBrings(t *testing.T) {
	const (
		self    = "Subscription kyma-integration/link "
		channel = "{apiVersion: messaging.knative.dev/v1alpha1, kind: Channel, name: shop}"
	)
	link := func(channel, subscriber, more string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf(`{apiVersion: messaging.knative.dev/v1alpha1, kind: Subscription, metadata: {namespace: kyma-integration, name: link%s},
  spec: {channel: %s, subscriber: %s}, status: {%s}}`, more, channel, subscriber, ready))
	}
	to := func(subscriber string) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{link(channel, subscriber, "")}
	}
	from := func(channel string) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{link(channel, "{uri: 'http://default-broker.sales'}", "")}
	}
	right := to("{uri: 'http://default-broker.sales'}")
	stale := to("{uri: 'http://default-broker.sales'}")
	stale[0].Object["status"] = map[string]any{}
	broker := manifest.Object(t, "{apiVersion: eventing.knative.dev/v1, kind: Broker, metadata: {namespace: sales, name: default}, status: {address: {url: 'http://broker-ingress.knative-eventing.svc.cluster.local/sales/default'}}}")
	elsewhere := func(to string) string {
		return "link-elsewhere: " + self + "brings the events of shop to " + to + ", not to the Broker of namespace sales"
	}
	for _, tc := range []struct {
		reason string
		links  []*unstructured.Unstructured
		broker *unstructured.Unstructured
		want   []string
	}{
		{reason: "as application-broker makes it", links: right},
		{reason: "the full name, a port and a root", links: to("{uri: 'http://default-broker.sales.svc.cluster.local:80/'}")},
		{reason: "a reference to the Broker", links: to("{ref: {apiVersion: eventing.knative.dev/v1, kind: Broker, namespace: sales, name: default}}")},
		{reason: "a reference to its Service", links: to("{ref: {apiVersion: v1, kind: Service, namespace: sales, name: default-broker}}")},
		{reason: "a reference as Knative 0.10 had it", links: to("{apiVersion: eventing.knative.dev/v1alpha1, kind: Broker, namespace: sales, name: default}")},
		{reason: "the Broker's own address, as later Knative gives it", links: to("{uri: 'http://broker-ingress.knative-eventing.svc.cluster.local/sales/default'}"), broker: broker},

		{reason: "none", want: []string{"link-missing: no Knative Subscription in kyma-integration brings the events of shop to namespace sales"}},
		{reason: "each event twice", links: append(to("{uri: 'http://default-broker.sales'}"), right...), want: []string{"link-twice: 2 Knative Subscriptions bring the events of shop to namespace sales, each event 2 times: link, link"}},
		{reason: "on its way out", links: []*unstructured.Unstructured{link(channel, "{uri: 'http://default-broker.sales'}", deleted)}, want: []string{"link-not-ready: " + self + "is being deleted"}},
		{reason: "no status yet", links: stale, want: []string{"link-not-ready: " + self + "has no status yet"}},

		{reason: "another namespace's Broker", links: to("{uri: 'http://default-broker.crm'}"), want: []string{elsewhere(`"default-broker.crm"`)}},
		{reason: "a host that only begins like it", links: to("{uri: 'http://default-broker.sales.svc.example.com'}"), want: []string{elsewhere(`"default-broker.sales.svc.example.com"`)}},
		{reason: "a path of the Broker", links: to("{uri: 'http://default-broker.sales/x'}"), want: []string{elsewhere(`"default-broker.sales"`)}},
		{reason: "a URI without a host", links: to("{uri: default-broker.sales}"), want: []string{elsewhere("an address that is no absolute URL")}},
		{reason: "another Broker's address", links: to("{uri: 'http://broker-ingress.knative-eventing.svc.cluster.local/crm/default'}"), broker: broker, want: []string{elsewhere(`"broker-ingress.knative-eventing.svc.cluster.local"`)}},
		{reason: "a password is not told", links: to("{uri: 'http://u:secret@x'}"), want: []string{elsewhere(`"x"`)}},
		{reason: "a reference to another namespace's Broker", links: to("{ref: {apiVersion: eventing.knative.dev/v1, kind: Broker, namespace: crm, name: default}}"), want: []string{elsewhere("Broker crm/default")}},
		{reason: "a reference without a namespace is to its own", links: to("{ref: {apiVersion: eventing.knative.dev/v1, kind: Broker, name: default}}"), want: []string{elsewhere("Broker kyma-integration/default")}},
		{reason: "another Broker of the namespace", links: to("{ref: {apiVersion: eventing.knative.dev/v1, kind: Broker, namespace: sales, name: other}}"), want: []string{elsewhere("Broker sales/other")}},
		{reason: "a kind Broker of somebody else", links: to("{ref: {apiVersion: example.com/v1, kind: Broker, namespace: sales, name: default}}"), want: []string{elsewhere("Broker sales/default")}},
		{reason: "a Knative Service of that name", links: to("{ref: {apiVersion: serving.knative.dev/v1, kind: Service, namespace: sales, name: default-broker}}"), want: []string{elsewhere("Service sales/default-broker")}},
		{reason: "a path relative to the Broker", links: to("{uri: /x, ref: {apiVersion: eventing.knative.dev/v1, kind: Broker, namespace: sales, name: default}}"), want: []string{elsewhere("Broker sales/default")}},
		{reason: "no subscriber", links: to("{}"), want: []string{elsewhere("nothing")}},

		{reason: "another Channel", links: from("{apiVersion: messaging.knative.dev/v1, kind: Channel, name: crm}"), want: []string{"link-elsewhere: " + self + "takes events from Channel kyma-integration/crm, not from Channel kyma-integration/shop"}},
		{reason: "a Channel of another namespace", links: from("{apiVersion: messaging.knative.dev/v1, kind: Channel, namespace: sales, name: shop}"), want: []string{"link-elsewhere: " + self + "takes events from Channel sales/shop, not from Channel kyma-integration/shop"}},
		{reason: "another kind of that name", links: from("{apiVersion: messaging.knative.dev/v1, kind: InMemoryChannel, name: shop}"), want: []string{"link-elsewhere: " + self + "takes events from InMemoryChannel kyma-integration/shop, not from Channel kyma-integration/shop"}},
	} {
		l := Link{Source: "shop", Namespace: "sales", Integration: integration, Links: tc.links, Broker: tc.broker}
		var got []string
		for _, a := range l.Defects() {
			got = append(got, words(a))
			if a.Note == "" || a.Command == "" {
				t.Errorf("%s: no hint", tc.reason)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
		if l.Brings().OK() != (tc.want == nil) {
			t.Errorf("%s: %+v", tc.reason, l.Brings())
		}
	}
}

func TestLinkOf(t *testing.T) {
	for labels, want := range map[string]bool{
		"{application-name: shop, broker-namespace: sales}": true,
		"{application-name: shop}":                          false,
		"{broker-namespace: sales}":                         false,
		"null":                                              false,
	} {
		source, namespace, ok := LinkOf(manifest.Object(t, "{apiVersion: m/v1, kind: Subscription, metadata: {name: l, labels: "+labels+"}}"))
		if ok != want || ok && (source != "shop" || namespace != "sales") {
			t.Errorf("%s: %q, %q, %t", labels, source, namespace, ok)
		}
	}
}

func TestAbout(t *testing.T) {
	missing := Source{Name: "shop", Namespace: integration}.TakesEvents()
	for want, got := range map[string]string{
		"it does not exist": missing.About(missing.Object.Kind, integration, "shop"),
		"HTTPSource kyma-integration/shop does not exist": missing.About(missing.Object.Kind, integration, "crm"),
		"": Answer{}.About(missing.Object.Kind, integration, "shop"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
