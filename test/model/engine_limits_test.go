package model_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/model"
)

// refusing runs the job while the server refuses what matches, in the words of a limit.
func (s *sandbox) refusing(job migration.Job, limit string, matches func(*model.Request) bool) *migration.Report {
	s.server.Refuse(func(r *model.Request) error {
		if r.Actor == "user" || !matches(r) {
			return nil
		}
		return model.Refusals[limit](r)
	})
	return s.run("first", job)
}

func creates(plural, namespace string) func(*model.Request) bool {
	return func(r *model.Request) bool {
		return r.Verb == "create" && r.Plural == plural && r.Namespace == namespace
	}
}

// withoutRaceDetector skips a test of megabytes where the race detector makes it take ten times as
// long. make test plays it without.
func withoutRaceDetector(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("make test plays this without the race detector")
	}
}

// TestLimitsAreNoPermissions: what refuses a state object, or what the job writes, is told by its
// name and with its own next command. On f3299ef a quota on the journal was "a permission is
// missing", exit code 4, and what etcd does not take was sent for a minute.
func TestLimitsAreNoPermissions(t *testing.T) {
	withoutRaceDetector(t)
	const state = program
	for limit, tc := range map[string]struct {
		id string
		// command is a part of the next one.
		command string
		// refused: before the first change the exit code is that of missing permissions.
		refused bool
		within  time.Duration
	}{
		"permission":  {id: "permission-missing", refused: true},
		"quota":       {id: "quota-exceeded", command: "describe resourcequotas"},
		"limit range": {id: "limit-range", command: "describe limitranges"},
		"policy":      {id: "policy-denied", command: "get validatingadmissionpolicies"},
		"webhook":     {id: "webhook-denied", command: "get validatingwebhookconfigurations"},
		"413":         {id: "object-too-large"},
		"etcd":        {id: "object-too-large"},
		"space":       {id: "storage-full", command: "kubectl get --raw '/readyz?verbose'"},
		"507":         {id: "storage-full", command: "kubectl get --raw '/readyz?verbose'"},
		// Retry-After is longer than what is left of the time for retries.
		"load": {id: "api-server-overloaded", command: "kubectl get --raw '/readyz?verbose'", within: 90 * time.Second},
	} {
		for object, matches := range map[string]func(*model.Request) bool{
			"Journal": creates("secrets", state), "Lease": creates("leases", state), "Object": creates("configmaps", "shop"),
		} {
			bubble(t, limit+object, func(t *testing.T, s *sandbox) {
				before := s.before()
				began := time.Now()
				r := s.refusing(fixed(unit("new", s.creation("new"))), limit, matches)
				if took := time.Since(began); took > max(tc.within, 10*time.Second) {
					t.Errorf("it took %s", took)
				}
				want := migration.FailedResult
				switch {
				case object == "Object":
					want = migration.RolledBack
				case tc.refused:
					want = migration.Refused
				}
				if r.Result != want {
					t.Errorf("got result %s, want %s: %s", r.Result, want, r.Message)
				}
				found := slices.IndexFunc(r.Findings, func(f migration.Finding) bool { return f.ID == tc.id })
				if found < 0 || !strings.Contains(r.Findings[found].Command, tc.command) {
					t.Fatalf("want %s with %q, got %+v", tc.id, tc.command, r.Findings)
				}
				if tc.id != "permission-missing" && slices.ContainsFunc(r.Findings, func(f migration.Finding) bool { return f.ID == "permission-missing" }) {
					t.Errorf("it is no permission: %+v", r.Findings)
				}
				if strings.Contains(r.Message, "deadline exceeded") {
					t.Errorf("nobody can act on %q", r.Message)
				}
				same(t, s.contents(), before)
				s.server.Refuse(nil)
				want = migration.Succeeded
				if r := s.run("second", fixed(unit("new", s.creation("new")))); r.Result != want {
					t.Errorf("then: %s: %s", r.Result, r.Message)
				}
			})
		}
	}
}

// TestRightsAreLost: an account that may not write the Lease or the journal any more ends within
// seconds, names the object and the account, and leaves an open journal, which a run with the right
// account finishes. On f3299ef it hung for the rest of its time limits, and the report did not name
// the Lease.
func TestRightsAreLost(t *testing.T) {
	lease := func(r *model.Request) bool { return r.Plural == "leases" && r.Verb == "update" }
	secrets := func(r *model.Request) bool { return r.Plural == "secrets" && r.Verb == "patch" }
	for name, tc := range map[string]struct {
		reason, limit string
		matches       func(*model.Request) bool
		id, object    string
	}{
		"Lease403":   {"RBAC", "permission", lease, "permission-lost", "Lease " + program + "/mover"},
		"Lease401":   {"the account is gone", "account", lease, "account-gone", ""},
		"LeaseQuota": {"a policy that somebody has made meanwhile", "policy", lease, "policy-denied", ""},
		"Journal403": {"RBAC", "permission", secrets, "permission-lost", "Secret " + program + "/"},
	} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			s.before()
			// What is created is ready after two minutes: long after the right is lost.
			job := fixed(unit("new", s.creation("new")), unit("victim", s.deletion("victim")))
			job.await = ready(4 * time.Minute)
			if tc.id == "permission-lost" && strings.HasPrefix(tc.object, "Secret") {
				job.await = gate("new") // it fails, and the rollback is not journaled any more
			}
			client := s.server.Client("first")
			var lost time.Time
			client.After(func(r *model.Request) {
				if call("create", "new")(r) {
					lost = time.Now()
					s.server.Refuse(func(r *model.Request) error {
						if r.Actor != "first" || !tc.matches(r) {
							return nil
						}
						return model.Refusals[tc.limit](r)
					})
				}
			})
			r := s.engine(client, "first").Run(t.Context(), job)
			if took := time.Since(lost); took > 20*time.Second {
				t.Errorf("%s: it went on for %s", tc.reason, took)
			}
			want(t, r, migration.PartlyRestored)
			if s.phases() != "forward" {
				t.Errorf("%s: the journal is %q", tc.reason, s.phases())
			}
			found := slices.IndexFunc(r.Findings, func(f migration.Finding) bool { return f.ID == tc.id })
			told := found >= 0 && strings.HasPrefix(r.Findings[found].Object, tc.object)
			if !told && !strings.HasPrefix(tc.id, "policy") {
				t.Fatalf("%s: findings %+v", tc.reason, r.Findings)
			}
			if tc.limit == "permission" && !strings.Contains(r.Findings[found].Problem, "first") {
				t.Errorf("%s: it must name the account: %s", tc.reason, r.Findings[found].Problem)
			}
			if !strings.Contains(r.Message+r.Findings[max(found, 0)].Problem, "mover") {
				t.Errorf("%s: it must name the object: %s", tc.reason, r.Message)
			}
			job.await = nil
			r = s.run("second", job)
			if r.Result != migration.Succeeded || s.phases() != "done" || s.get("victim") != nil || s.get("new") == nil {
				t.Errorf("%s: then %s, %q: %s", tc.reason, r.Result, s.phases(), r.Message)
			}
		})
	}
}

// letters is a text of that size, which compresses to three quarters.
func letters(r *rand.Rand, size int) string {
	const all = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
	text := make([]byte, size)
	for k := range text {
		text[k] = all[r.IntN(len(all))]
	}
	return string(text)
}

// TestMarksOfAFullJournal: a run whose pre-images fill a Secret closes its journal, and so does an
// undo. On f3299ef the marks did not fit any more: two runs ended well, and the journal was
// "forward" for ever.
func TestMarksOfAFullJournal(t *testing.T) {
	withoutRaceDetector(t)
	for name, tc := range map[string]struct {
		reason        string
		objects, each int
		result        migration.Result
	}{
		"900KiB":  {"what goes into one Secret", 100, 12 << 10, migration.Succeeded},
		"1000KiB": {"in two", 100, 13650, migration.Succeeded},
		"OneMiB":  {"one object", 1, 1200 << 10, migration.Succeeded},
		"1.4MiB":  {"one that may not be restored for certain", 1, 1433 << 10, migration.Refused},
	} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			var units []migration.Unit
			noise := rand.New(rand.NewPCG(1, 2))
			for i := range tc.objects {
				name := "o" + strings.Repeat("x", i%10) + string(rune('a'+i/10))
				s.put(name, map[string]any{"k": letters(noise, tc.each)})
				units = append(units, unit(name, s.deletion(name)))
			}
			before := s.contents()
			r := s.run("first", fixed(units...))
			want(t, r, tc.result)
			if tc.result == migration.Refused {
				mustSay(t, r, migration.Error, "ConfigMap shop/oa has 1433 KiB")
				same(t, s.contents(), before)
				return
			}
			if s.phases() != "done" {
				t.Fatalf("%s: the journal is %q: %+v", tc.reason, s.phases(), r.Findings)
			}
			want(t, s.undo(fixed()), migration.Succeeded)
			same(t, s.contents(), before)
		})
	}
}

// TestKilledBetweenParts: a run that is killed while it writes the first part of its journal has
// changed nothing, and the next one does all. On f3299ef each later run was refused, as the journal
// was damaged.
func TestKilledBetweenParts(t *testing.T) {
	withoutRaceDetector(t)
	for _, after := range []string{"-0000", "-p1", "-p2"} {
		bubble(t, after, func(t *testing.T, s *sandbox) {
			var units []migration.Unit
			noise := rand.New(rand.NewPCG(1, 2))
			for _, name := range []string{"a", "b", "c"} {
				s.put(name, map[string]any{"k": letters(noise, 1200<<10)})
				units = append(units, unit(name, s.deletion(name)))
			}
			s.killed(fixed(units...), true, func(r *model.Request) bool {
				return r.Verb == "create" && r.Plural == "secrets" && strings.HasSuffix(r.Name, after)
			})
			if len(s.contents()) != 3 {
				t.Error("something was changed before the journal was complete")
			}
			want(t, s.run("second", fixed(units...)), migration.Succeeded)
			if s.phases() != "done" || len(s.contents()) > 0 {
				t.Errorf("phases %q, left %d objects", s.phases(), len(s.contents()))
			}
		})
	}
}

// TestEventsCountChanges: the Event in a namespace counts what was changed there. On f3299ef it
// counted what was left, too.
func TestEventsCountChanges(t *testing.T) {
	bubble(t, "Left", func(t *testing.T, s *sandbox) {
		s.before()
		job := fixed(unit("patched", patching("patched", `{"data":{"ours":"new"}}`)), unit("victim", s.deletion("victim")))
		r := s.meanwhile(job, call("delete", "victim"), func() { s.edit("victim", `{"data":{"a":"2"}}`) })
		want(t, r, migration.DeferredResult)
		var told []string
		for key, obj := range s.server.Objects() {
			if key.Plural == "events" {
				message, _, _ := unstructured.NestedString(obj, "message")
				told = append(told, message)
			}
		}
		if len(told) != 1 || !strings.Contains(told[0], ": 1 change in this namespace") {
			t.Errorf("got %q", told)
		}
	})
}

// TestUnreadableStateHidesNoOther: a journal or a report that somebody has damaged hides those of
// no other run or job. On f3299ef status said nothing but the error.
func TestUnreadableStateHidesNoOther(t *testing.T) {
	bubble(t, "Damaged", func(t *testing.T, s *sandbox) {
		s.before()
		want(t, s.run("first", fixed(unit("victim", s.deletion("victim")))), migration.Succeeded)
		for plural, object := range map[string]map[string]any{
			"secrets": {"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"run": "eA=="}, "metadata": map[string]any{
				"name": "mover-other-1-0000", "labels": map[string]any{
					"mover.example.com/job": "other", "mover.example.com/run": "1", "mover.example.com/phase": "forward",
				},
			}},
			"configmaps": {"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"report.json": "x"}, "metadata": map[string]any{
				"name": "mover-other", "labels": map[string]any{"mover.example.com/job": "other"},
			}},
		} {
			_, err := s.user.Resource(schema.GroupVersionResource{Version: "v1", Resource: plural}).Namespace(program).
				Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		state, err := s.engine(s.server.Client("status"), "status").State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if open := state.Open("other"); open == nil || open.Run != "1" || len(state.Journals) != 2 || state.Reports["scripted"] == nil || state.Reports["other"] != nil {
			t.Errorf("got %+v", state)
		}
	})
}
