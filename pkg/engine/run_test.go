package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestNotUnderWay(t *testing.T) {
	subscriptions := migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "eventing.kyma-project.io", Version: "v1alpha1", Resource: "subscriptions"}, Kind: "Subscription"}
	ref := func(name string) migration.Ref {
		return migration.Ref{Resource: subscriptions, Namespace: "shop", Name: name}
	}
	finding := func(severity migration.Severity, name string) migration.Finding {
		return migration.Finding{Severity: severity, Object: ref(name).String(), Problem: "it is being deleted already"}
	}
	entries := func(deletion journal.StepState, shown bool) []*journal.Entry {
		e := journal.NewEntry(0, migration.Unit{ID: "a", Changes: []migration.Change{{Verb: migration.Patch, Ref: ref("links")}, {Verb: migration.Delete, Ref: ref("ours")}}}, nil)
		e.Read = true
		e.Step(0).SetState(journal.StepDone)
		e.Step(1).SetState(deletion)
		e.Step(1).SetInspected(shown, false)
		return []*journal.Entry{e}
	}
	begun := entries(journal.StepUnknown, true)
	cases := map[string]struct {
		reason   string
		findings []migration.Finding
		entries  []*journal.Entry
		want     []migration.Finding
	}{
		"FirstRun": {
			reason:   "without an interrupted run, everything that is deferred is said",
			findings: []migration.Finding{finding(migration.Deferred, "ours")},
			want:     []migration.Finding{finding(migration.Deferred, "ours")},
		},
		"Resumed": {
			reason:   "what the journal is about to finish is not deferred, what somebody else deletes is",
			findings: []migration.Finding{finding(migration.Deferred, "ours"), finding(migration.Deferred, "theirs")},
			entries:  begun,
			want:     []migration.Finding{finding(migration.Deferred, "theirs")},
		},
		"DeletionNotBegun": {
			reason:   "that the unit was begun says nothing about an object whose own deletion was not",
			findings: []migration.Finding{finding(migration.Deferred, "ours")},
			entries:  entries(journal.StepNotBegun, false),
			want:     []migration.Finding{finding(migration.Deferred, "ours")},
		},
		"Warning": {
			reason:   "what is not about deferring stays, whatever object it names",
			findings: []migration.Finding{finding(migration.Warning, "ours"), finding(migration.Error, "ours")},
			entries:  begun,
			want:     []migration.Finding{finding(migration.Warning, "ours"), finding(migration.Error, "ours")},
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
