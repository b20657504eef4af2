package trigger

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// stored is a cluster that holds these objects, and serves every kind.
type stored []*unstructured.Unstructured

func (s stored) Served(_ context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	k := assumedKinds()
	for _, one := range k.all() {
		if one.GroupKind == gk {
			return one.Resource, true, nil
		}
	}
	return migration.Resource{}, false, nil
}

func (s stored) Each(_ context.Context, r migration.Resource, namespace string, opts migration.ListOptions, visit func(*unstructured.Unstructured) error) error {
	for _, obj := range s {
		if obj.GetKind() != r.Kind || obj.GroupVersionKind().Group != r.Group || namespace != "" && obj.GetNamespace() != namespace {
			continue
		}
		obj = obj.DeepCopy()
		if opts.Trim != nil {
			opts.Trim(obj)
		}
		if err := visit(obj); err != nil {
			return err
		}
	}
	return nil
}

func (s stored) ListEach(ctx context.Context, r migration.Resource, namespace string, opts migration.ListOptions, visit func(*unstructured.Unstructured)) error {
	return s.Each(ctx, r, namespace, opts, func(obj *unstructured.Unstructured) error {
		visit(obj)
		return nil
	})
}

func (s stored) List(ctx context.Context, r migration.Resource, namespace string, opts migration.ListOptions) (all []*unstructured.Unstructured, err error) {
	err = s.Each(ctx, r, namespace, opts, func(obj *unstructured.Unstructured) error {
		all = append(all, obj)
		return nil
	})
	return all, err
}

func (s stored) Get(_ context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	for _, obj := range s {
		if obj.GetKind() == ref.Kind && obj.GetNamespace() == ref.Namespace && obj.GetName() == ref.Name {
			return obj.DeepCopy(), nil
		}
	}
	return nil, nil
}

func (stored) PodGet(context.Context, string, string, int, string, url.Values) ([]byte, error) {
	return nil, nil
}

// sourceNamed is an HTTPSource for the events of commerce.
func sourceNamed(name string) *unstructured.Unstructured {
	return isReady(obj("sources.kyma-project.io/v1alpha1", "HTTPSource", "kyma-integration", name, map[string]any{"spec": map[string]any{"source": "commerce"}}))
}

// TestObserveMesh reads a cluster through the job's own reading and trimming: what
// the answers need must be in what is kept. Without a look at the pods, which no
// Deployment counts once they terminate, TestContract is not worth much.
func TestObserveMesh(t *testing.T) {
	mesh := func() stored {
		deployment := eventService(onMesh, rolled())
		deployment.SetGeneration(1)
		link := linkTo("http://default-broker.shop")
		link.SetLabels(map[string]string{"application-name": "commerce", "broker-namespace": "shop"})
		channel := addressed(isReady(obj("messaging.knative.dev/v1", "Channel", "kyma-integration", "commerce", nil)))
		return stored{sourceNamed("commerce"), channel, isReady(obj("serving.knative.dev/v1", "Service", "kyma-integration", "commerce", nil)), deployment, link}
	}
	pod := func(name, args string, edit func(*unstructured.Unstructured)) *unstructured.Unstructured {
		p := obj("v1", "Pod", "kyma-integration", name, map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "commerce-event-service", "args": []any{args}},
		}}})
		p.SetLabels(map[string]string{"app": "commerce-event-service"})
		edit(p)
		return p
	}
	unchanged := func(*unstructured.Unstructured) {}
	container := func(p *unstructured.Unstructured) map[string]any {
		return p.Object["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	}
	cases := map[string]struct {
		reason          string
		more            stored
		takes, switched string // words of the reason; "" if it holds
	}{
		"All":       {reason: "Nothing is missing in what is kept of the objects.", more: stored{pod("new", onMesh, unchanged)}},
		"OldPod":    {reason: "It has no Deployment that counts it.", more: stored{pod("new", onMesh, unchanged), pod("old", "--sourceId=commerce", unchanged)}, switched: "Pod kyma-integration/old does not carry --eventMeshURL"},
		"LabelGone": {reason: "Without its label it posts on (fails on the commit before: pods were known by their label only).", more: stored{pod("old", "", func(p *unstructured.Unstructured) { p.SetLabels(nil) })}, switched: "Pod kyma-integration/old"},
		"LabelOnly": {reason: "A container may be called anything.", more: stored{pod("old", "", func(p *unstructured.Unstructured) { container(p)["name"] = "main" })}, switched: "Pod kyma-integration/old"},
		"OwnerOnly": {reason: "Its ReplicaSet says whose it is.", more: stored{pod("old", "", func(p *unstructured.Unstructured) {
			p.SetLabels(nil)
			container(p)["name"] = "main"
			p.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "commerce-event-service-5d9c", "uid": "u"}}
		})}, switched: "Pod kyma-integration/old"},
		"Elsewhere":  {reason: "Any flag counted as that of this source (fails on the commit before).", more: stored{pod("odd", "--eventMeshURL=http://crm.kyma-integration", unchanged)}, switched: `Pod kyma-integration/odd posts to the host "crm.kyma-integration"`},
		"OfAnother":  {reason: "It posts nothing of this Application.", more: stored{pod("other", "", func(p *unstructured.Unstructured) { p.SetLabels(nil); container(p)["name"] = "other-event-service" })}},
		"Ended":      {reason: "An evicted pod does nothing.", more: stored{pod("old", "", func(p *unstructured.Unstructured) { p.Object["status"] = map[string]any{"phase": "Failed"} })}},
		"TwoSources": {reason: "One under another name does not hide the right one.", more: stored{sourceNamed("a"), sourceNamed("zz")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := New().options
			cluster := append(mesh(), tc.more...)
			s, err := observe(t.Context(), cluster, o, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.observeMesh(t.Context(), cluster, o); err != nil {
				t.Fatal(err)
			}
			for what, pair := range map[string][2]string{
				"takes":    {tc.takes, s.meshTakes(pair{"commerce", "shop"}, o).problem},
				"switched": {tc.switched, s.switched("commerce", o).problem},
			} {
				if want, got := pair[0], pair[1]; want == "" && got != "" || !strings.Contains(got, want) {
					t.Errorf("%s %s: got %q, want the words %q", tc.reason, what, got, want)
				}
			}
		})
	}
}

// TestKeep: a Trigger and its Broker stay if live events may come through them, in
// doubt, too.
func TestKeep(t *testing.T) {
	trigger := func(namespace, name string, spec map[string]any) *unstructured.Unstructured {
		return obj("eventing.knative.dev/v1", "Trigger", namespace, name, map[string]any{"spec": spec})
	}
	attributes := func(kv ...string) map[string]any {
		all := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			all[kv[i]] = kv[i+1]
		}
		return map[string]any{"filter": map[string]any{"attributes": all}}
	}
	posts := eventService(onMesh, rolled())
	k := assumedKinds()
	const kept = "carries live events: Deployment kyma-integration/commerce-event-service posts those of commerce to the mesh"
	for name, tc := range map[string]struct {
		reason  string
		poster  *unstructured.Unstructured
		trigger *unstructured.Unstructured
		want    bool
	}{
		"OfTheSource":  {"Its events come through it.", posts, trigger("shop", "t", attributes("source", "commerce", "type", "order.created")), true},
		"AnySource":    {"A filter without a source admits those events, too.", posts, trigger("shop", "t", attributes("type", "order.created")), true},
		"EmptySource":  {"An empty value admits any.", posts, trigger("shop", "t", attributes("source", "")), true},
		"NoFilter":     {"It admits everything.", posts, trigger("shop", "t", map[string]any{}), true},
		"Opaque":       {"What cannot be judged may admit them.", posts, trigger("shop", "t", map[string]any{"filters": []any{map[string]any{"exact": map[string]any{"source": "crm"}}}}), true},
		"Extension":    {"A filter on another attribute cannot be judged.", posts, trigger("shop", "t", attributes("source", "crm", "subject", "x")), true},
		"OtherSource":  {"None of its events are live.", posts, trigger("shop", "t", attributes("source", "crm")), false},
		"OtherBroker":  {"Events come to the default Broker only.", posts, trigger("shop", "t", map[string]any{"broker": "other"}), false},
		"NothingPosts": {"There are no live events.", eventService("--sourceId=commerce", rolled()), trigger("shop", "t", map[string]any{}), false},
		"EmptyURL":     {"It proves nothing, and is enough to keep what it may use.", eventService("--eventMeshURL=", rolled()), trigger("shop", "t", attributes("source", "commerce")), true},
	} {
		t.Run(name, func(t *testing.T) {
			refs := []migration.Ref{
				k.trigger.RefTo(tc.trigger), k.broker.Ref("shop", "default"), k.broker.Ref("crm", "default"),
				{Resource: serviceAccounts, Namespace: "shop", Name: "eventing-broker-ingress"},
			}
			want := map[migration.Ref]string{}
			if tc.want {
				want = map[migration.Ref]string{refs[0]: kept, refs[1]: kept, refs[3]: kept}
			}
			got, err := keep(t.Context(), stored{tc.poster, tc.trigger}, k, "kyma-integration", refs)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	// On f3299ef an undo deleted the Broker under it, and said nothing.
	t.Run("OfSomebodyElse", func(t *testing.T) {
		refs := []migration.Ref{k.broker.Ref("shop", "default"), {Resource: serviceAccounts, Namespace: "shop", Name: "eventing-broker-ingress"}, k.broker.Ref("crm", "default")}
		theirs := trigger("shop", "theirs", attributes("source", "crm"))
		got, err := keep(t.Context(), stored{eventService("--sourceId=commerce", rolled()), theirs, trigger("shop", "other", map[string]any{"broker": "other"})}, k, "kyma-integration", refs)
		const why = "Trigger shop/theirs gets its events through it"
		if diff := cmp.Diff(map[migration.Ref]string{refs[0]: why, refs[1]: why}, got); diff != "" || err != nil {
			t.Errorf("its Broker stays, without live events, too: %v (-want +got):\n%s", err, diff)
		}
	})
}
