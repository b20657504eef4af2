package snapshot

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
)

func objects(t *testing.T, raw ...string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, r := range raw {
		obj := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(r), &obj.Object); err != nil {
			t.Fatalf("%s: %v", r, err)
		}
		out = append(out, obj)
	}
	return out
}

func TestEqual(t *testing.T) {
	const owner = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"n","name":"owner","uid":"u1"}}`
	const ownerAnew = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"n","name":"owner","uid":"u2"}}`
	cases := map[string]struct {
		reason        string
		opts          Options
		before, after []string
		equal         bool
	}{
		"WhatTheServerSets": {
			reason: "Restoring an object cannot give it back what the API server sets.",
			before: []string{`{"apiVersion":"v1","kind":"Service","metadata":{"name":"x","uid":"1","resourceVersion":"1","generation":1,"creationTimestamp":"a","managedFields":[{}]},"spec":{"a":1},"status":{"b":1}}`},
			after:  []string{`{"apiVersion":"v1","kind":"Service","metadata":{"name":"x","uid":"2","resourceVersion":"2","generation":3,"creationTimestamp":"b","managedFields":[]},"spec":{"a":1},"status":{"b":2}}`},
			equal:  true,
		},
		"Spec": {
			reason: "The spec is what counts.",
			before: []string{`{"kind":"Service","metadata":{"name":"x"},"spec":{"a":1}}`},
			after:  []string{`{"kind":"Service","metadata":{"name":"x"},"spec":{"a":2}}`},
		},
		"Label": {
			reason: "Labels count.",
			before: []string{`{"kind":"Namespace","metadata":{"name":"x"}}`},
			after:  []string{`{"kind":"Namespace","metadata":{"name":"x","labels":{"knative-eventing-injection":"enabled"}}}`},
		},
		"Mark": {
			reason: "A mark of the migration that stays behind is a difference.",
			before: []string{`{"kind":"Service","metadata":{"name":"x"}}`},
			after:  []string{`{"kind":"Service","metadata":{"name":"x","annotations":{"eventmesh-migration.kyma-project.io/change":"r/u/1"}}}`},
		},
		"MarkOfAnotherRun": {
			reason: "Which run it was can be left out of the comparison.",
			opts:   Options{IgnoreAnnotations: []string{"mark"}},
			before: []string{`{"kind":"Service","metadata":{"name":"x","annotations":{"mark":"run-1"}}}`},
			after:  []string{`{"kind":"Service","metadata":{"name":"x","annotations":{"mark":"run-2"}}}`},
			equal:  true,
		},
		"IgnoredMarkGone": {
			reason: "That an ignored annotation is there counts.",
			opts:   Options{IgnoreAnnotations: []string{"mark"}},
			before: []string{`{"kind":"Service","metadata":{"name":"x","annotations":{"mark":"run-1"}}}`},
			after:  []string{`{"kind":"Service","metadata":{"name":"x"}}`},
		},
		"EmptyLabels": {
			reason: "No labels and none at all are the same.",
			before: []string{`{"kind":"Service","metadata":{"name":"x","labels":{},"annotations":{}}}`},
			after:  []string{`{"kind":"Service","metadata":{"name":"x"}}`},
			equal:  true,
		},
		"Terminating": {
			reason: "An object that is about to vanish is not the one that was there.",
			before: []string{`{"kind":"Service","metadata":{"name":"x"}}`},
			after:  []string{`{"kind":"Service","metadata":{"name":"x","deletionTimestamp":"2020-01-01T00:00:00Z"}}`},
		},
		"OwnerRemapped": {
			reason: "The owner was created again, and the reference follows it.",
			before: []string{owner, `{"kind":"Secret","metadata":{"namespace":"n","name":"x","ownerReferences":[{"kind":"ConfigMap","name":"owner","uid":"u1"}]}}`},
			after:  []string{ownerAnew, `{"kind":"Secret","metadata":{"namespace":"n","name":"x","ownerReferences":[{"kind":"ConfigMap","name":"owner","uid":"u2"}]}}`},
			equal:  true,
		},
		"OwnerNotRemapped": {
			reason: "The reference still means the owner that is gone: the garbage collector would take the object.",
			before: []string{owner, `{"kind":"Secret","metadata":{"namespace":"n","name":"x","ownerReferences":[{"kind":"ConfigMap","name":"owner","uid":"u1"}]}}`},
			after:  []string{ownerAnew, `{"kind":"Secret","metadata":{"namespace":"n","name":"x","ownerReferences":[{"kind":"ConfigMap","name":"owner","uid":"u1"}]}}`},
		},
		"UIDElsewhere": {
			reason: "An annotation that names a re-created object by its UID is remapped, too.",
			before: []string{owner, `{"kind":"Secret","metadata":{"namespace":"n","name":"x","annotations":{"of":"u1"}}}`},
			after:  []string{ownerAnew, `{"kind":"Secret","metadata":{"namespace":"n","name":"x","annotations":{"of":"u2"}}}`},
			equal:  true,
		},
		"OwnState": {
			reason: "The migration's own objects are no change of the cluster.",
			after: []string{
				`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"` + kyma.StateNamespace + `","name":"eventmesh-migration"}}`,
				`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"` + kyma.StateNamespace + `","name":"eventmesh-migration-job-run-0000"}}`,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"` + kyma.StateNamespace + `","name":"eventmesh-migration-job"}}`,
				`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + kyma.StateNamespace + `"}}`,
				`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":"` + kyma.StateNamespace + `","name":"default"}}`,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"` + kyma.StateNamespace + `","name":"kube-root-ca.crt"}}`,
			},
			equal: true,
		},
		"NamespaceOfSimilarName": {
			reason: "Only the state namespace itself is no change.",
			after:  []string{`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"eventmesh-migration-2"}}`},
		},
		"OwnStateElsewhere": {
			reason: "State lives in exactly one namespace.",
			after:  []string{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"eventmesh-migration-job"}}`},
		},
		"OwnStateChosen": {
			reason: "That namespace can be chosen.",
			opts:   Options{StateNamespace: "other"},
			after:  []string{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"other","name":"eventmesh-migration-job"}}`},
			equal:  true,
		},
		"ForeignOfSimilarName": {
			reason: "Only Lease, Secrets and ConfigMaps are state.",
			after:  []string{`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":"` + kyma.StateNamespace + `","name":"eventmesh-migration"}}`},
		},
		"Heartbeats": {
			reason: "Control planes renew their Leases all the time.",
			after:  []string{`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"kube-system","name":"apiserver-1"}}`},
			equal:  true,
		},
		"PodsReplaced": {
			reason: "The same number of pods of the same owner, under new names and on other nodes.",
			before: []string{`{"kind":"Pod","metadata":{"namespace":"n","name":"d-1","generateName":"d-","labels":{"a":"b"},"ownerReferences":[{"kind":"ReplicaSet","name":"d","controller":true,"uid":"?"}]},"spec":{"nodeName":"1"}}`},
			after:  []string{`{"kind":"Pod","metadata":{"namespace":"n","name":"d-2","generateName":"d-","labels":{"a":"b"},"ownerReferences":[{"kind":"ReplicaSet","name":"d","controller":true,"uid":"?"}]},"spec":{"nodeName":"2"}}`},
			equal:  true,
		},
		"PodsFewer": {
			reason: "A replica less is a difference.",
			before: []string{
				`{"kind":"Pod","metadata":{"namespace":"n","name":"d-1","generateName":"d-","ownerReferences":[{"kind":"ReplicaSet","name":"d","controller":true}]}}`,
				`{"kind":"Pod","metadata":{"namespace":"n","name":"d-2","generateName":"d-","ownerReferences":[{"kind":"ReplicaSet","name":"d","controller":true}]}}`,
			},
			after: []string{`{"kind":"Pod","metadata":{"namespace":"n","name":"d-2","generateName":"d-","ownerReferences":[{"kind":"ReplicaSet","name":"d","controller":true}]}}`},
		},
		"PreferredVersionChanged": {
			reason: "The same object, served at another version.",
			before: []string{`{"apiVersion":"g/v1alpha1","kind":"K","metadata":{"name":"x"}}`},
			after:  []string{`{"apiVersion":"g/v1","kind":"K","metadata":{"name":"x"}}`},
			equal:  true,
		},
		"Status": {
			reason: "Asked for, the status counts.",
			opts:   Options{Status: true},
			before: []string{`{"kind":"K","metadata":{"name":"x"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`},
			after:  []string{`{"kind":"K","metadata":{"name":"x"},"status":{"conditions":[{"type":"Ready","status":"False"}]}}`},
		},
		"StatusTimes": {
			reason: "Since when does not.",
			opts:   Options{Status: true},
			before: []string{`{"kind":"K","metadata":{"name":"x"},"status":{"observedGeneration":1,"conditions":[{"type":"Ready","lastTransitionTime":"a","last_transition_time":"a"}]}}`},
			after:  []string{`{"kind":"K","metadata":{"name":"x"},"status":{"observedGeneration":2,"conditions":[{"type":"Ready","lastTransitionTime":"b","last_transition_time":"b"}]}}`},
			equal:  true,
		},
		"Raw": {
			reason: "Untouched means the same resource version.",
			opts:   Options{Raw: true},
			before: []string{`{"kind":"K","metadata":{"name":"x","resourceVersion":"1"}}`},
			after:  []string{`{"kind":"K","metadata":{"name":"x","resourceVersion":"2"}}`},
		},
		"Ignored": {
			reason: "A test may know of more that does not count.",
			opts:   Options{Ignore: func(obj *unstructured.Unstructured) bool { return obj.GetName() == "x" }},
			after:  []string{`{"kind":"K","metadata":{"name":"x"}}`},
			equal:  true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := normalize(objects(t, tc.before...), tc.opts)
			after := normalize(objects(t, tc.after...), tc.opts)
			if diff := Diff(before, after); (diff == "") != tc.equal {
				t.Errorf("%s\nequal: %v, want %v; diff:\n%s", tc.reason, diff == "", tc.equal, diff)
			}
			if diff := Diff(before, before); diff != "" {
				t.Errorf("a snapshot differs from itself:\n%s", diff)
			}
		})
	}
}

func TestNormalizeLeavesObjectsAlone(t *testing.T) {
	all := objects(t, `{"kind":"K","metadata":{"name":"x","uid":"1","ownerReferences":[{"uid":"2"}]},"status":{}}`)
	want := all[0].DeepCopy()
	normalize(all, Options{})
	if diff := cmp.Diff(want, all[0]); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestDiffNamesObjects(t *testing.T) {
	before := normalize(objects(t,
		`{"apiVersion":"eventing.kyma-project.io/v1alpha1","kind":"Subscription","metadata":{"namespace":"prod","name":"orders"}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"prod"}}`,
	), Options{})
	after := normalize(objects(t,
		`{"apiVersion":"messaging.knative.dev/v1","kind":"Subscription","metadata":{"namespace":"prod","name":"orders"}}`,
		`{"apiVersion":"sources.kyma-project.io/v1alpha1","kind":"HTTPSource","metadata":{"namespace":"kyma-integration","name":"shop"}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"prod"}}`,
	), Options{})
	want := "+ HTTPSource kyma-integration/shop\n" +
		"- Subscription.eventing.kyma-project.io prod/orders\n" +
		"+ Subscription.messaging.knative.dev prod/orders\n"
	if diff := cmp.Diff(want, Diff(before, after)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestDiffShowsFields(t *testing.T) {
	before := normalize(objects(t, `{"kind":"K","metadata":{"namespace":"n","name":"x"},"spec":{"same":1,"a":"old"}}`), Options{})
	after := normalize(objects(t, `{"kind":"K","metadata":{"namespace":"n","name":"x"},"spec":{"same":1,"a":"new"}}`), Options{})
	got := Diff(before, after)
	for _, want := range []string{"~ K n/x\n", `"old"`, `"new"`} {
		if !strings.Contains(got, want) {
			t.Errorf("diff lacks %q:\n%s", want, got)
		}
	}
}
