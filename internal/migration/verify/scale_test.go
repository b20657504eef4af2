package verify

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/eventmap"
	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// stored is a cluster that serves every kind, with these objects.
type stored map[string][]*unstructured.Unstructured

func (s stored) Served(_ context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	return migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: gk.Group, Version: "v1", Resource: gk.Kind}, Kind: gk.Kind}, true, nil
}

func (s stored) Each(_ context.Context, r migration.Resource, namespace string, o migration.ListOptions, do func(*unstructured.Unstructured) error) error {
	for _, u := range s[r.Kind+"."+r.Group] {
		if namespace != "" && u.GetNamespace() != namespace {
			continue
		}
		if o.Trim != nil {
			u = u.DeepCopy()
			o.Trim(u)
		}
		if err := do(u); err != nil {
			return err
		}
	}
	return nil
}

func (s stored) add(t *testing.T, group, text string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	key := u.GetKind() + "." + group
	s[key] = append(s[key], u)
}

// TestALargeCluster looks at 200 Applications and 2,000 Triggers, half of which
// have their Kyma Subscription still. Their endpoints are written in another way, and
// are the same. It takes a fraction of a second; with searches in place of what index
// makes it was a minute.
func TestALargeCluster(t *testing.T) {
	const apps, triggers = 200, 2000
	const ready = `status: {conditions: [{type: Ready, status: "True"}]}`
	s := stored{}
	for i := range apps {
		name := fmt.Sprintf("app-%04d", i)
		s.add(t, kyma.Application.Group, fmt.Sprintf(`{kind: Application, metadata: {name: %s}, spec: {}}`, name))
		s.add(t, kyma.HTTPSource.Group, fmt.Sprintf(`{kind: HTTPSource, metadata: {namespace: kyma-integration, name: %s, uid: u%d}, spec: {source: %s}, %s}`, name, i, name, ready))
		s.add(t, "", fmt.Sprintf(`{kind: Pod, metadata: {namespace: kyma-integration, name: %s-event-service-x, labels: {app: %s-event-service}}, spec: {containers: [{name: %s-event-service, args: ["/eventservice"]}]}}`, name, name, name))
		s.add(t, kyma.ChannelSubscription.Group, fmt.Sprintf(`{kind: Subscription, metadata: {namespace: kyma-integration, name: link-%d, labels: {application-name: %s, broker-namespace: ns-%d}}, spec: {channel: {name: %s}, subscriber: {uri: "http://default-broker.ns-%d"}}, %s}`, i, name, i%50, name, i%50, ready))
	}
	for i := range 50 {
		s.add(t, "", fmt.Sprintf(`{kind: Namespace, metadata: {name: ns-%d}}`, i))
		s.add(t, knative.Broker.Group, fmt.Sprintf(`{kind: Broker, metadata: {namespace: ns-%d, name: default}, %s}`, i, ready))
	}
	for i := range triggers {
		app := i % apps
		s.add(t, knative.Trigger.Group, fmt.Sprintf(`{kind: Trigger, metadata: {namespace: ns-%d, name: t-%d}, spec: {broker: default, filter: {attributes: {source: app-%04d, type: e%d, eventtypeversion: v1}}, subscriber: {uri: "http://s%d.ns-1.svc.cluster.local"}}, %s}`, app%50, i, app, i, i, ready))
		if i%2 == 0 {
			s.add(t, kyma.Subscription.Group, fmt.Sprintf(`{kind: Subscription, metadata: {namespace: ns-%d, name: s-%d}, spec: {source_id: app-%04d, event_type: e%d, event_type_version: v1, endpoint: "http://s%d.ns-1:80/"}}`, app%50, i, app, i, i))
		}
	}
	began := time.Now()
	in, err := inventory.Read(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, d := range Check(in, nil, nil, time.Now()) {
		found[d.ID]++
	}
	m := eventmap.New(in, "")
	for _, write := range []func(io.Writer) error{m.WriteMermaid, func(w io.Writer) error { return m.WriteHTML(w, "x", began) }} {
		var out strings.Builder
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
	}
	if rows := m.Rows(); len(rows) != 1+triggers {
		t.Errorf("the map has %d rows", len(rows))
	}
	t.Logf("%s; found %v", time.Since(began), found)
	if len(m.Applications) != apps || len(m.Flows) != triggers {
		t.Errorf("the map has %d Applications and %d flows", len(m.Applications), len(m.Flows))
	}
	for id, want := range map[string]int{"subscription-left": triggers / 2, "eventservice-former-pod": apps, "trigger-without-link": 0, "subscription-without-trigger": 0} {
		if found[id] != want {
			t.Errorf("%d times %s, want %d", found[id], id, want)
		}
	}
}
