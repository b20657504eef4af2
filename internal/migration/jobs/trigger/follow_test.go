package trigger

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/view"
)

// TestFollows: the Trigger that this job has made for a Subscription, and that nobody has edited,
// follows the Subscription when that is edited. On f3299ef each later run left it, with the former
// address.
func TestFollows(t *testing.T) {
	k := assumedKinds()
	endpoint := func(to string) func(sub *unstructured.Unstructured) {
		return func(sub *unstructured.Unstructured) { sub.Object["spec"].(map[string]any)["endpoint"] = to }
	}
	const moved = "http://moved.shop:8080/"
	for name, tc := range map[string]struct {
		reason  string
		sub     func(sub *unstructured.Unstructured)
		trigger func(trigger *unstructured.Unstructured)
		more    *unstructured.Unstructured
		want    string
	}{
		"Endpoint": {
			"It was edited between the plan and the creation, or later.", endpoint(moved), nil, nil,
			`{"metadata":{"annotations":{"DELIVERY":"MARK"}},"spec":{"filter":{"attributes":{"eventtypeversion":"v1","source":"commerce","type":"order.created"}},"subscriber":{"uri":"http://moved.shop:8080/"}}}`,
		},
		"EventType": {
			"So was the kind of event.", func(sub *unstructured.Unstructured) { sub.Object["spec"].(map[string]any)["event_type"] = "order.paid" }, nil, nil,
			`{"metadata":{"annotations":{"DELIVERY":"MARK"}},"spec":{"filter":{"attributes":{"eventtypeversion":"v1","source":"commerce","type":"order.paid"}},"subscriber":{"uri":"http://fn.shop:8080/"}}}`,
		},
		"Edited": {"Somebody has decided what the Trigger does.", endpoint(moved), func(trigger *unstructured.Unstructured) {
			trigger.Object["spec"].(map[string]any)["subscriber"] = map[string]any{"uri": "http://other.shop/"}
		}, nil, ""},
		"Foreign": {"This job has not made it.", endpoint(moved), func(trigger *unstructured.Unstructured) { trigger.SetAnnotations(nil) }, nil, ""},
		"OfAnother": {
			"A Subscription of the same name was deleted, and the Trigger brings its events.",
			func(sub *unstructured.Unstructured) { endpoint(moved)(sub); sub.SetUID("another") }, nil, nil, "",
		},
		"Shared": {
			"Another Subscription needs it as it is.", endpoint(moved), nil,
			obj("eventing.kyma-project.io/v1alpha1", "Subscription", "shop", "stock", map[string]any{"spec": map[string]any{
				"endpoint": "http://fn.shop:8080/", "source_id": "commerce", "event_type": "order.created", "event_type_version": "v1",
			}}), "",
		},
		"Deleted": {"It goes.", endpoint(moved), func(trigger *unstructured.Unstructured) {
			trigger.Object["metadata"].(map[string]any)["deletionTimestamp"] = ago(0)
		}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := live()
			i := slices.IndexFunc(w.objects, func(u *unstructured.Unstructured) bool {
				return u.GetKind() == "Subscription" && u.GetNamespace() == "shop"
			})
			sub := w.objects[i]
			was, obstacle := route.DeliveryOf(sub)
			if obstacle != nil {
				t.Fatal(obstacle.Problem)
			}
			trigger := isReady(route.NewTrigger(k.trigger, sub, was))
			trigger.SetUID("trigger")
			w.objects = slices.DeleteFunc(w.objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Trigger" })
			if tc.trigger != nil {
				tc.trigger(trigger)
			}
			tc.sub(sub)
			w.objects = append(w.objects, trigger)
			if tc.more != nil {
				w.objects = append(w.objects, tc.more)
			}
			p, err := New().plan(t.Context(), w, nil, 0, nil, false)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			for _, u := range p.Units {
				for n := range u.Changes {
					ch := &u.Changes[n]
					if ch.Ref.Kind == knative.Trigger.Kind && ch.Writes() {
						got = strings.ReplaceAll(string(ch.Patch), kyma.DeliveryAnnotation, "DELIVERY")
						follows(t, ch, trigger)
					}
				}
			}
			now, _ := route.DeliveryOf(sub)
			if diff := cmp.Diff(tc.want, strings.ReplaceAll(got, route.Mark(sub, now), "MARK")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			taken := slices.ContainsFunc(p.Findings, func(f migration.Finding) bool { return f.ID == "trigger-name-taken" })
			if taken == (tc.want != "") {
				t.Errorf("%s: left with a finding: %t", tc.reason, taken)
			}
		})
	}
}

// follows checks that a patch rests on what it replaces, and is awaited until it is seen.
func follows(t *testing.T, ch *migration.Change, trigger *unstructured.Unstructured) {
	t.Helper()
	if ch.Verb != migration.Patch || ch.UID != "trigger" {
		t.Errorf("%s %s of UID %q", ch.Verb, ch.Ref, ch.UID)
	}
	for _, path := range [][]string{{"spec", "filter"}, {"spec", "subscriber"}, {"metadata", "annotations", kyma.DeliveryAnnotation}} {
		want, _, _ := unstructured.NestedFieldNoCopy(trigger.Object, path...)
		got, _, _ := unstructured.NestedFieldNoCopy(ch.Object.Object, path...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("its basis at %q (-want +got):\n%s", path, diff)
		}
	}
	ready := New().Await(ch)[0]
	if st := ready.Eval(view.Of{trigger}); st.State != migration.Pending {
		t.Errorf("the Trigger before the patch is taken for that after it: %+v", st)
	}
	after := trigger.DeepCopy()
	var patch map[string]any
	if err := json.Unmarshal(ch.Patch, &patch); err != nil {
		t.Fatal(err)
	}
	after.Object["spec"] = patch["spec"]
	if st := ready.Eval(view.Of{after}); st.State != migration.Met {
		t.Errorf("the Trigger after the patch: %+v", st)
	}
}
