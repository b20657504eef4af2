package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestJudge: a webhook matters if the API server asks it before a write of a job.
func TestJudge(t *testing.T) {
	rows := []migration.Access{
		{Group: "eventing.knative.dev", Resource: "triggers", Verbs: []string{"list", "create"}},
		{Group: "apps", Resource: "deployments", Namespace: "kyma-system", Verbs: []string{"get", "patch"}},
		{Group: "batch", Resource: "jobs", Verbs: []string{"list", "watch"}},
	}
	const down = "its Service a/b does not exist"
	hook := func(change ...func(*webhook)) webhook {
		h := webhook{configuration: "ValidatingWebhookConfiguration all", down: down}
		h.Name, h.ClientConfig.Service = "x.example.com", &admissionv1.ServiceReference{Namespace: "a", Name: "b"}
		h.Rules = []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.OperationAll},
			Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		}}
		for _, c := range change {
			c(&h)
		}
		return h
	}
	rule := func(operation admissionv1.OperationType, group, resource string) func(*webhook) {
		return func(h *webhook) {
			h.Rules = []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{operation}, Rule: admissionv1.Rule{APIGroups: []string{group}, Resources: []string{resource}},
			}}
		}
	}
	selects := func(value string) func(*webhook) {
		return func(h *webhook) {
			h.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": value}}
		}
	}
	for _, tc := range []struct {
		reason string
		hook   webhook
		want   string // ID and problem
	}{
		{"everything is asked", hook(), "check-webhook-down webhook x.example.com refuses triggers.eventing.knative.dev: " + down},
		{"creations of a kind that a job creates", hook(rule(admissionv1.Create, "eventing.knative.dev", "triggers")), "check-webhook-down webhook x.example.com refuses triggers.eventing.knative.dev: " + down},
		{"a patch is an update", hook(rule(admissionv1.Update, "apps", "deployments")), "check-webhook-down webhook x.example.com refuses deployments.apps: " + down},
		{"nobody deletes these", hook(rule(admissionv1.Delete, "apps", "deployments")), ""},
		{"only read", hook(rule(admissionv1.Create, "batch", "jobs")), ""},
		{"another group", hook(rule(admissionv1.Create, "messaging.knative.dev", "triggers")), ""},
		{"it is ignored when it does not answer", hook(func(h *webhook) { h.FailurePolicy = new(admissionv1.Ignore) }), "check-webhook-slow webhook x.example.com delays writes of triggers.eventing.knative.dev: " + down},
		{"it answers", hook(func(h *webhook) { h.down = "" }), ""},
		{"a namespace of another team", hook(selects("none")), ""},
		{"the namespace of a user", hook(selects("shop")), "check-webhook-down webhook x.example.com refuses triggers.eventing.knative.dev: " + down},
		{"the namespace of a row", hook(selects("kyma"), rule(admissionv1.Update, "apps", "deployments")), "check-webhook-down webhook x.example.com refuses deployments.apps: " + down},
		{"not the namespace of that row", hook(selects("shop"), rule(admissionv1.Update, "apps", "deployments")), ""},
		{
			"dry runs", hook(func(h *webhook) { h.down, h.SideEffects = "", new(admissionv1.SideEffectClassUnknown) }),
			"check-webhook-dry-run webhook x.example.com has side effects, so dry runs of triggers.eventing.knative.dev are refused",
		},
		{"no side effects", hook(func(h *webhook) { h.down, h.SideEffects = "", new(admissionv1.SideEffectClassNone) }), ""},
	} {
		w := &webhooks{all: []webhook{tc.hook}, namespaces: map[string]labels.Set{"kyma-system": {"team": "kyma"}, "shop": {"team": "shop"}}}
		var got []string
		for _, f := range w.judge(rows) {
			got = append(got, f.ID+" "+f.Problem)
		}
		if diff := cmp.Diff(tc.want, strings.Join(got, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestOddWebhooks: a webhook that cannot be decoded is named with its field, and hides no other.
func TestOddWebhooks(t *testing.T) {
	resource := migration.Resource{
		GroupVersionResource: admissionv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"), Kind: "ValidatingWebhookConfiguration",
	}
	good := func(name string) any {
		return map[string]any{"name": name, "rules": []any{map[string]any{"operations": []any{"*"}, "apiGroups": []any{"apps"}, "apiVersions": []any{"*"}, "resources": []any{"*"}}}}
	}
	w := &webhooks{}
	for name, hooks := range map[string]any{
		"a": []any{good("first"), map[string]any{"name": "odd", "clientConfig": map[string]any{"service": map[string]any{"namespace": int64(5)}}}, good("second")},
		"b": "none",
		"c": []any{"odd", good("third")},
		"d": nil,
	} {
		w.add(resource, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "webhooks": hooks}})
	}
	var all, odd []string
	for i := range w.all {
		all = append(all, w.all[i].configuration+" "+w.all[i].Name)
		if len(w.all[i].Rules) != 1 {
			t.Errorf("the rules of %s are lost", w.all[i].Name)
		}
	}
	for _, f := range w.unreadable {
		odd = append(odd, f.ID+" "+f.Object+": "+f.Problem+"; "+f.Command)
	}
	slices.Sort(all)
	slices.Sort(odd)
	const unknown = ". Whether the API server asks it before a write of the jobs is unknown; kubectl edit validatingwebhookconfigurations "
	want := []string{
		"check-webhook-unreadable ValidatingWebhookConfiguration a: webhooks[1].clientConfig.service.namespace must not be of type number" + unknown + "a",
		"check-webhook-unreadable ValidatingWebhookConfiguration b: webhooks is not a list" + unknown + "b",
		"check-webhook-unreadable ValidatingWebhookConfiguration c: webhooks[0] must not be of type string" + unknown + "c",
	}
	if diff := cmp.Diff(want, odd); diff != "" {
		t.Errorf("what is odd (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ValidatingWebhookConfiguration a first", "ValidatingWebhookConfiguration a second", "ValidatingWebhookConfiguration c third"}, all); diff != "" {
		t.Errorf("what is not (-want +got):\n%s", diff)
	}
}

// TestRole: one rule for a resource, and a binding of its own for each user.
func TestRole(t *testing.T) {
	got, err := Role([]migration.Access{
		{Resource: "pods", Verbs: []string{"list", "get"}},
		{Resource: "pods", Verbs: []string{"watch", "list"}},
		{Group: "apps", Resource: "deployments", Namespace: "a", Names: []string{"one"}, Verbs: []string{"patch"}},
	}, "idp/ada@example.com")
	if err != nil {
		t.Fatal(err)
	}
	const want = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: eventmesh-migrate}
rules:
- {apiGroups: [""], resources: ["pods"], verbs: ["get","list","watch"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "eventmesh-migrate:idp-ada@example.com"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: eventmesh-migrate}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "idp/ada@example.com"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: eventmesh-migrate, namespace: a}
rules:
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["patch"], resourceNames: ["one"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: "eventmesh-migrate:idp-ada@example.com", namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: eventmesh-migrate}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "idp/ada@example.com"}]
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRunsOf: a run that works now is an error, and those that were interrupted are warnings.
func TestRunsOf(t *testing.T) {
	now := time.Date(2026, 4, 1, 22, 0, 0, 0, time.UTC)
	lock := func(renewed time.Time) *engine.HeldLock {
		return &engine.HeldLock{Holder: "laptop_42", User: "ada", Acquired: now.Add(-time.Hour), Renewed: renewed, Duration: 30 * time.Second}
	}
	journals := []engine.StoredJournal{{Job: "trigger-sync", Run: "r2", Phase: "forward", Open: true}, {Job: "trigger-sync", Run: "r1"}}
	for _, tc := range []struct {
		reason string
		kept   engine.State
		want   string // severity, ID, object and problem
	}{
		{"nothing has run", engine.State{}, ""},
		{"all runs have ended", engine.State{Journals: journals[1:]}, ""},
		{"one was interrupted", engine.State{Journals: journals}, "warning run-open job trigger-sync: run r2 was interrupted, and is open (forward)"},
		{"its process holds the lock, and is gone", engine.State{Journals: journals, Lock: lock(now.Add(-time.Minute))}, "warning run-open job trigger-sync: run r2 was interrupted, and is open (forward)"},
		{
			"its process is alive", engine.State{Journals: journals, Lock: lock(now.Add(-time.Second))},
			`error run-running Lease state/eventmesh-migration: another run works now: user ada, process "laptop_42" holds the lock since 2026-04-01T21:00:00Z, and renewed it at 2026-04-01T21:59:59Z`,
		},
		{
			"it has no journal yet", engine.State{Lock: lock(now)},
			`error run-running Lease state/eventmesh-migration: another run works now: user ada, process "laptop_42" holds the lock since 2026-04-01T21:00:00Z, and renewed it at 2026-04-01T22:00:00Z`,
		},
	} {
		r := &Result{}
		r.runsOf(&tc.kept, "state", now)
		var got []string
		for _, f := range r.Findings {
			got = append(got, string(f.Severity)+" "+f.ID+" "+f.Object+": "+f.Problem)
		}
		if diff := cmp.Diff(tc.want, strings.Join(got, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestUnlessForbidden: what may not be read is a finding, and other errors stay errors.
func TestUnlessForbidden(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "", errors.New("no"))
	for _, tc := range []struct {
		reason string
		err    error
		fails  bool
		want   []string
	}{
		{reason: "it could be read"},
		{reason: "it may not be read", err: fmt.Errorf("cannot list: %w", forbidden), want: []string{`jobs of Helm: not checked, because this account may not read "jobs.batch"`}},
		{reason: "all permissions of a job", err: &engine.PermissionError{Err: forbidden}, want: []string{`jobs of Helm: not checked, because this account may not read "jobs.batch"`}},
		{reason: "the server does not answer", err: errors.New("timeout"), fails: true},
	} {
		r := &Result{}
		if err := r.unlessForbidden("jobs of Helm", tc.err); (err != nil) != tc.fails {
			t.Errorf("%s: %v", tc.reason, err)
		}
		var got []string
		for _, f := range r.Findings {
			got = append(got, f.Object+": "+f.Problem)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
