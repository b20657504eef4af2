package k8sobject

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"

	"github.com/kyma-project/eventmesh-migration/test/manifest"
)

// TestConditionOf compares what is read with what the converter makes of the same status, and
// reads on where that gives up.
func TestConditionOf(t *testing.T) {
	ready := apis.Condition{Type: "Ready", Status: "False", Reason: "Broken", Message: "no sink"}
	for name, tc := range map[string]struct {
		reason, status string
		want           apis.Condition
		refused        bool // by the converter
	}{
		"Knative":    {"as Knative's controllers write it", `{observedGeneration: 2, conditions: [{type: Other, status: "True"}, {type: Ready, status: "False", reason: Broken, message: no sink}]}`, ready, false},
		"Annotated":  {"other fields do not matter", `{annotations: {a: b}, address: {url: "http://a"}, conditions: [{type: Ready, status: "False", reason: Broken, message: no sink}]}`, ready, false},
		"Missing":    {"it has none of that name", `{conditions: [{type: Other, status: "True"}]}`, apis.Condition{}, false},
		"OddTime":    {"a time that is none", `{conditions: [{type: Ready, status: "False", reason: Broken, message: no sink, lastTransitionTime: yesterday}]}`, ready, true},
		"OddElement": {"an odd condition before it", `{conditions: [{type: Other, message: 7}, {type: Ready, status: "False", reason: Broken, message: no sink}]}`, ready, true},
		"OddStatus":  {"an odd field of the status", `{annotations: 7, conditions: [{type: Ready, status: "False", reason: Broken, message: no sink}]}`, ready, true},
		"OddReason":  {"the rest of a condition is read", `{conditions: [{type: Ready, status: "False", reason: 7, message: no sink}]}`, apis.Condition{Type: "Ready", Status: "False", Message: "no sink"}, true},
		"OddState":   {"a state that is none does not hold", `{conditions: [{type: Ready, status: true}]}`, apis.Condition{Type: "Ready"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			obj := manifest.Object(t, "{apiVersion: v1, kind: X, status: "+tc.status+"}")
			got := ConditionOf(obj, apis.ConditionReady)
			if diff := cmp.Diff(tc.want, got.Condition); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			var status duckv1.Status
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(MapAt(obj.Object, "status"), &status)
			if (err != nil) != tc.refused {
				t.Fatalf("%s: the converter says: %v", tc.reason, err)
			}
			if typed := status.GetCondition(apis.ConditionReady); err == nil && typed != nil {
				if diff := cmp.Diff(*typed, got.Condition); diff != "" {
					t.Errorf("%s (-the converter +ours):\n%s", tc.reason, diff)
				}
			}
		})
	}
}

func TestReadinessOf(t *testing.T) {
	cases := map[string]struct {
		reason   string
		manifest string
		want     Readiness
		ok       bool
	}{
		"Ready": {
			reason: "The condition Ready decides, wherever it stands in the list.",
			manifest: `{apiVersion: v1, kind: X, metadata: {generation: 2}, status: {observedGeneration: 2, conditions: [
				{type: Addressable, status: "False"}, {type: Ready, status: "True"}, {type: Other, status: "False"}]}}`,
			want: Readiness{Condition: Condition{apis.Condition{Type: "Ready", Status: "True"}}, Current: true}, ok: true,
		},
		"StaleGeneration": {
			reason:   "A condition of an earlier generation says nothing about this one.",
			manifest: `{apiVersion: v1, kind: X, metadata: {generation: 3}, status: {observedGeneration: 2, conditions: [{type: Ready, status: "True"}]}}`,
			want:     Readiness{Condition: Condition{apis.Condition{Type: "Ready", Status: "True"}}},
		},
		"NeverObserves": {
			reason:   "The HTTPSource controller never sets observedGeneration; its word must do.",
			manifest: `{apiVersion: v1, kind: X, metadata: {generation: 3}, status: {conditions: [{type: Ready, status: "True"}]}}`,
			want:     Readiness{Condition: Condition{apis.Condition{Type: "Ready", Status: "True"}}, Current: true}, ok: true,
		},
		"NotReady": {
			reason:   "Reason and message are what a person needs.",
			manifest: `{apiVersion: v1, kind: X, status: {conditions: [{type: Ready, status: "False", reason: SinkNotFound, message: no sink}]}}`,
			want:     Readiness{Condition: Condition{apis.Condition{Type: "Ready", Status: "False", Reason: "SinkNotFound", Message: "no sink"}}, Current: true},
		},
		"NoStatus": {
			reason:   "A new object has none yet.",
			manifest: `{apiVersion: v1, kind: X}`,
			want:     Readiness{Current: true},
		},
		"OddShapes": {
			reason:   "A status of another shape is no status, and no panic.",
			manifest: `{apiVersion: v1, kind: X, status: {observedGeneration: "2", conditions: [1, null, {type: [Ready]}]}}`,
			want:     Readiness{Current: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ReadinessOf(manifest.Object(t, tc.manifest))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nReadinessOf(): -want +got:\n%s", tc.reason, diff)
			}
			if got.OK() != tc.ok {
				t.Errorf("%s\nOK() = %t, want %t", tc.reason, got.OK(), tc.ok)
			}
		})
	}
}
