package migration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestNotUnderWay(t *testing.T) {
	subscriptions := Resource{GroupVersionResource: schema.GroupVersionResource{Group: "eventing.kyma-project.io", Version: "v1alpha1", Resource: "subscriptions"}, Kind: "Subscription"}
	ref := func(name string) Ref { return Ref{Resource: subscriptions, Namespace: "shop", Name: name} }
	finding := func(severity Severity, name string) Finding {
		return Finding{Severity: severity, Object: ref(name).String(), Problem: "it is being deleted already"}
	}
	entries := func(deletion step) []*entry {
		return []*entry{{
			Unit:  Unit{ID: "a", Changes: []Change{{Verb: Patch, Ref: ref("links")}, {Verb: Delete, Ref: ref("ours")}}},
			steps: []step{{state: stepDone}, deletion}, read: true,
		}}
	}
	begun := entries(step{state: stepUnknown, made: true})
	cases := map[string]struct {
		reason   string
		findings []Finding
		entries  []*entry
		want     []Finding
	}{
		"FirstRun": {
			reason:   "without an interrupted run, everything that is deferred is said",
			findings: []Finding{finding(Deferred, "ours")},
			want:     []Finding{finding(Deferred, "ours")},
		},
		"Resumed": {
			reason:   "what the journal is about to finish is not deferred, what somebody else deletes is",
			findings: []Finding{finding(Deferred, "ours"), finding(Deferred, "theirs")},
			entries:  begun,
			want:     []Finding{finding(Deferred, "theirs")},
		},
		"DeletionNotBegun": {
			reason:   "that the unit was begun says nothing about an object whose own deletion was not",
			findings: []Finding{finding(Deferred, "ours")},
			entries:  entries(step{state: stepNotBegun}),
			want:     []Finding{finding(Deferred, "ours")},
		},
		"Warning": {
			reason:   "what is not about deferring stays, whatever object it names",
			findings: []Finding{finding(Warning, "ours"), finding(Error, "ours")},
			entries:  begun,
			want:     []Finding{finding(Warning, "ours"), finding(Error, "ours")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, notUnderWay(tc.findings, tc.entries)); diff != "" {
				t.Errorf("%s\n-want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
