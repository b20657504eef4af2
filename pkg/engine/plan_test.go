//go:build !race

// It shares helpers with engine_test.go.

package engine

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// explained is a unit whose change tells what it replaces.
func explained(u migration.Unit) migration.Unit {
	u.Changes[0].Explain = func() *migration.Replacement { return &migration.Replacement{Of: "Former shop/a"} }
	return u
}

// TestPlan holds what a plan shows, and that it writes nothing.
func TestPlan(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		job      migration.Job
		result   migration.Result
		changes  int
		findings int
		words    string
	}{
		"Writes":   {"changes", planning(creating("a", "new"), deleting("b")), migration.Planned, 2, 0, "2 changes"},
		"Waits":    {"waits beside changes", planning(creating("a", "new"), waiting("b")), migration.Planned, 2, 0, "wait for 1 existing object"},
		"WaitOnly": {"waits alone", planning(waiting("b")), migration.Planned, 1, 0, "0 changes"},
		"Nothing":  {"nothing", planning(), migration.Planned, 0, 0, "nothing to do"},
		"Refused":  {"a run would be refused", found(migration.Error), migration.Refused, 0, 1, "it is odd"},
		"Deferred": {"a finding", found(migration.Deferred), migration.Planned, 0, 1, "nothing to do"},
		"Explains": {"what a change replaces", planning(explained(creating("a", "new"))), migration.Planned, 1, 0, "1 change"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			report := c.engine(Options{}).Plan(t.Context(), tc.job)
			if report.Result != tc.result || len(report.Changes) != tc.changes || len(report.Findings) != tc.findings || !strings.Contains(report.Message, tc.words) {
				t.Errorf("%s: %+v", tc.reason, report)
			}
			if strings.Contains(report.Message, "wait") != (name == "Waits" || name == "WaitOnly") {
				t.Errorf("%s: %s", tc.reason, report.Message)
			}
			for _, ch := range report.Changes {
				if (ch.Reversible == "") != (ch.Verb == migration.Await) || (ch.Replaces != nil) != (name == "Explains") {
					t.Errorf("%s: %+v", tc.reason, ch)
				}
			}
			for _, a := range c.client.Actions() {
				if a.GetVerb() != "get" && a.GetVerb() != "list" && a.GetResource().Resource != "selfsubjectaccessreviews" {
					t.Errorf("%s: it writes: %v", tc.reason, a)
				}
			}
		})
	}
}

// TestPlanShowsOpenRuns: a plan says that a run was interrupted, by its journal or, without the
// permission to read that, by the Lease.
func TestPlanShowsOpenRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		findings := func() []migration.Finding { return c.engine(Options{}).Plan(t.Context(), planning()).Findings }
		if got := findings(); len(got) != 0 {
			t.Errorf("there is none: %v", got)
		}
		c.interrupted(planning(creating("a", "new"), creating("c", "new")), "create", "a")
		if got := findings(); len(got) != 1 || !strings.Contains(got[0].Problem, "journal") {
			t.Errorf("with the journal: %v", got)
		}
		c.denied = []string{"list secrets"}
		if got := findings(); len(got) != 1 || !strings.Contains(got[0].Problem, "Lease") {
			t.Errorf("with the Lease: %v", got)
		}
		c.denied = nil
		c.undo(planning())
		if got := findings(); len(got) != 0 {
			t.Errorf("it is undone: %v", got)
		}
	})
}

// TestState holds what is told of the runs of all jobs.
func TestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.run(planning(creating("a", "new")), Options{})
		c.interrupted(planning(creating("c", "new"), creating("d", "new")), "create", "c")
		s, err := c.engine(Options{}).State(t.Context())
		if err != nil || len(s.Journals) != 2 || !s.Journals[0].Open || s.Journals[1].Open || s.Lock != nil || s.Reports["job"] == nil || s.Reports["job"].Result != migration.Interrupted {
			t.Errorf("%+v, %v", s, err)
		}
		if open := s.Open("job"); open == nil || open.Run != s.Journals[0].Run || s.Open("other") != nil {
			t.Errorf("open: %+v", open)
		}
	})
}

// TestPermissions: a permission is spelt as a Role has it.
func TestPermissions(t *testing.T) {
	for want, p := range map[string]permission{
		"get pods in the whole cluster":                     {verb: "get", resource: "pods"},
		"get pods in namespace shop":                        {verb: "get", resource: "pods", namespace: "shop"},
		"patch deployments/scale.apps in the whole cluster": {verb: "patch", group: "apps", resource: "deployments", subresource: "scale"},
		"get leases.coordination.k8s.io x in namespace n":   {verb: "get", group: "coordination.k8s.io", resource: "leases", name: "x", namespace: "n"},
	} {
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	p := permission{verb: "get", resource: "pods", namespace: "shop"}
	for name, tc := range map[string]struct {
		reason string
		row    migration.Access
		want   bool
	}{
		"Named":          {"a row with the name", migration.Access{Resource: "pods", Namespace: "shop", Names: []string{"a"}, Verbs: []string{"get"}}, true},
		"WholeCluster":   {"a row of all namespaces", migration.Access{Resource: "pods", Names: []string{"a"}, Verbs: []string{"get"}}, true},
		"OtherName":      {"another name", migration.Access{Resource: "pods", Names: []string{"b"}, Verbs: []string{"get"}}, false},
		"OtherVerb":      {"another verb", migration.Access{Resource: "pods", Names: []string{"a"}, Verbs: []string{"list"}}, false},
		"OtherNamespace": {"another namespace", migration.Access{Resource: "pods", Namespace: "bar", Names: []string{"a"}, Verbs: []string{"get"}}, false},
		"OtherResource":  {"another resource", migration.Access{Resource: "secrets", Names: []string{"a"}, Verbs: []string{"get"}}, false},
		"OtherGroup":     {"another group", migration.Access{Group: "apps", Resource: "pods", Names: []string{"a"}, Verbs: []string{"get"}}, false},
	} {
		if got := byName([]migration.Access{tc.row}, p, "a"); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

// TestDefaults: what is not given has its default, and what is given stays.
func TestDefaults(t *testing.T) {
	given := Options{
		StateNamespace: "s", Timeout: 1, RollbackTimeout: 2, LeaseDuration: time.Second, LockWait: 3, OnFailure: OnFailureLeave, Resume: ResumeBack, Defer: DeferFail, MaxUnready: 4,
	}
	type short struct {
		StateNamespace                                    string
		Timeout, RollbackTimeout, LeaseDuration, LockWait time.Duration
		OnFailure                                         OnFailure
		Resume                                            Resume
		Defer                                             Defer
		MaxUnready                                        int
	}
	brief := func(o Options) short {
		return short{o.StateNamespace, o.Timeout, o.RollbackTimeout, o.LeaseDuration, o.LockWait, o.OnFailure, o.Resume, o.Defer, o.MaxUnready}
	}
	all := given
	all.setDefaults()
	if diff := cmp.Diff(brief(given), brief(all)); diff != "" {
		t.Errorf("given (-want +got):\n%s", diff)
	}
	none := Options{Names: enginetest.Names}
	none.setDefaults()
	want := short{enginetest.Names.Program, 15 * time.Minute, 5 * time.Minute, 30 * time.Second, time.Minute, OnFailureRollback, ResumeForward, DeferAllow, 50}
	if diff := cmp.Diff(want, brief(none)); diff != "" || none.Log == nil || none.Progress == nil {
		t.Errorf("none (-want +got):\n%s", diff)
	}
}

// TestShortened: a report leaves out of its ConfigMap what went well, and of the rest as much as
// there is no room for.
func TestShortened(t *testing.T) {
	report := &migration.Report{Changes: []migration.ChangeReport{{Name: "a", Result: migration.ChangeDone}, {Name: "b", Result: migration.ChangeUnchanged}, {Name: "c", Result: migration.ChangeFailed}}}
	short, _, err := shortened(report)
	if err != nil || len(short.Changes) != 1 || short.Changes[0].Name != "c" || short.LeftOut != 0 {
		t.Errorf("%+v, %v", short, err)
	}
	for range 5000 {
		report.Findings = append(report.Findings, migration.Finding{Problem: strings.Repeat("x", 100)})
	}
	short, raw, err := shortened(report)
	if err != nil || len(raw) > reportBytes || len(short.Findings) == 0 || short.LeftOut+len(short.Findings)+len(short.Changes) != 5001 {
		t.Errorf("%d bytes, %d findings, %d left out, %v", len(raw), len(short.Findings), short.LeftOut, err)
	}
	report.Message = strings.Repeat("x", reportBytes)
	if short, _, err := shortened(report); err != nil || len(short.Findings) != 0 {
		t.Errorf("%d findings, %v", len(short.Findings), err)
	}
}

// TestPublish holds which reports and Events a run leaves.
func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		stored := func() string {
			configMap, err := c.client.CoreV1().ConfigMaps(enginetest.Names.Program).Get(t.Context(), "mover-job", metav1.GetOptions{})
			if err != nil {
				return ""
			}
			var report migration.Report
			if err := json.Unmarshal([]byte(configMap.Data["report.json"]), &report); err != nil {
				t.Fatal(err)
			}
			return report.Command + " " + string(report.Result)
		}
		events := func() []corev1.Event {
			list, err := c.client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return list.Items
		}
		c.run(planning(), Options{})
		if stored() != "" || len(events()) != 0 {
			t.Errorf("nothing to do is no news: %q, %v", stored(), events())
		}
		c.run(planning(creating("a", "new")), Options{})
		if got := events(); stored() != "run succeeded" || len(got) != 1 || got[0].Type != corev1.EventTypeNormal {
			t.Errorf("%q, %v", stored(), got)
		}
		c.run(planning(), Options{})
		if stored() != "run succeeded" {
			t.Errorf("the success is still true: %q", stored())
		}
		c.api.Fail(enginetest.Fault{Verb: "create", Name: "c", Err: forbidden})
		c.run(planning(creating("c", "new")), Options{})
		if got := events(); stored() != "run rolled-back" || len(got) != 2 || got[0].Type == got[1].Type {
			t.Errorf("%q, %v", stored(), got)
		}
		c.undo(planning())
		if stored() != "undo succeeded" {
			t.Errorf("got %q", stored())
		}
	})
}

// inNamespace is a job that may be limited to a namespace.
type inNamespace struct{ *enginetest.Job }

func (inNamespace) LimitsNamespace() {}

// TestOnlyNamespace: a limited run never says that all is done, and finishes no run that was not
// limited so.
func TestOnlyNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		shop := Options{OnlyNamespace: "shop"}
		if r := c.run(planning(creating("a", "new")), shop); r.Result != migration.FailedResult || !strings.Contains(r.Message, "cannot be limited to namespace shop") {
			t.Errorf("a job of the whole cluster: %s: %s", r.Result, r.Message)
		}
		if r := c.run(inNamespace{planning(creating("a", "new"))}, shop); r.Result != migration.DeferredResult || len(r.Findings) != 1 || r.Findings[0].ID != "other-namespaces" {
			t.Errorf("a run: %s: %+v", r.Result, r.Findings)
		}
		if r := c.run(inNamespace{planning()}, shop); r.Result != migration.DeferredResult {
			t.Errorf("a run with nothing to do: %s", r.Result)
		}
		c.interrupted(planning(creating("c", "new"), creating("d", "new")), "create", "c")
		if r := c.run(inNamespace{planning(creating("d", "new"))}, shop); r.Result != migration.Refused || r.Findings[0].ID != "run-open" || c.api.Live(enginetest.Ref("Thing", "d")) != nil {
			t.Errorf("after an interrupted run of the whole cluster: %s: %+v", r.Result, r.Findings)
		}
		if r := c.run(planning(creating("d", "new")), Options{}); r.Result != migration.Succeeded {
			t.Errorf("without the limit: %s: %s", r.Result, r.Message)
		}
		ctx, stop := context.WithCancelCause(t.Context())
		c.api.Fail(enginetest.Fault{Verb: "create", Name: "e", Before: func() { stop(SignalError{Signal: 15}) }})
		c.runUntil(ctx, inNamespace{planning(creating("e", "new"), creating("f", "new"))}, shop)
		if r := c.run(inNamespace{planning(creating("f", "new"))}, shop); r.Result != migration.DeferredResult || c.api.Live(enginetest.Ref("Thing", "f")) == nil {
			t.Errorf("after an interrupted run of the same namespace: %s: %s", r.Result, r.Message)
		}
	})
}

// TestWho: the holder of the lock is named by what is known of it.
func TestWho(t *testing.T) {
	for want, l := range map[string]HeldLock{
		`"p"`: {Holder: "p"},
		`user u, process "p" on h (job, trigger-sync)`: {Holder: "p", User: "u", Host: "h", Jobs: []string{"job", "trigger-sync"}},
	} {
		if got := l.Who(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
