package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestWorse: what a finished rollback could not restore is not right because the run
// after it went well. Fails on the commit before: exit 0.
func TestWorse(t *testing.T) {
	for name, tc := range map[string]struct {
		reason        string
		earlier, then migration.Result
		want          migration.Result
	}{
		"Restored":    {"all was restored", migration.RolledBack, migration.NothingToDo, migration.NothingToDo},
		"None":        {"there was no rollback to finish", "", migration.Succeeded, migration.Succeeded},
		"NothingToDo": {"nothing to do afterwards", migration.PartlyRestored, migration.NothingToDo, migration.PartlyRestored},
		"Succeeded":   {"a success afterwards", migration.PartlyRestored, migration.Succeeded, migration.PartlyRestored},
		"Deferred":    {"a deferral afterwards", migration.PartlyRestored, migration.DeferredResult, migration.PartlyRestored},
		"Locked":      {"what failed by itself says so", migration.PartlyRestored, migration.Locked, migration.Locked},
		"TimedOut":    {"a timeout, too", migration.PartlyRestored, migration.TimedOut, migration.TimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{earlierOutcome: outcome{result: tc.earlier, message: "1 change could not be restored"}}
			got := r.withEarlier(outcome{result: tc.then, message: "then"})
			said := got.message == "1 change could not be restored; then: then"
			if got.result != tc.want || said != (tc.earlier == migration.PartlyRestored) {
				t.Errorf("%s: got %s, %q", tc.reason, got.result, got.message)
			}
		})
	}
}

// TestFinished: work that has to wait fails the run under --defer=fail.
func TestFinished(t *testing.T) {
	deferred := []migration.Finding{{Severity: migration.Deferred, Problem: "not yet"}}
	for name, tc := range map[string]struct {
		findings []migration.Finding
		policy   Defer
		want     migration.Result
	}{
		"Nothing":       {nil, DeferFail, migration.Succeeded},
		"Deferred":      {deferred, DeferAllow, migration.DeferredResult},
		"DeferredFails": {deferred, DeferFail, migration.FailedResult},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{reporter: &reporter{e: &Engine{opts: Options{Defer: tc.policy}}, actor: &actor{findings: &findings{list: tc.findings}}}}
			if got := r.finished(outcome{result: migration.Succeeded}); got.result != tc.want {
				t.Errorf("got %s", got.result)
			}
		})
	}
}

func TestAllIndependent(t *testing.T) {
	writes := []migration.Change{{Verb: migration.Create}}
	for name, tc := range map[string]struct {
		reason string
		units  []migration.Unit
		want   bool
	}{
		"All":   {"all are", []migration.Unit{{Changes: writes, Independent: true}, {Changes: writes, Independent: true}}, true},
		"One":   {"one is not", []migration.Unit{{Changes: writes, Independent: true}, {Changes: writes}}, false},
		"Waits": {"one that only waits does not count", []migration.Unit{{Changes: writes, Independent: true}, {Changes: []migration.Change{{Verb: migration.Await}}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := allIndependent(&migration.Plan{Units: tc.units}); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// TestProgress counts what a run that timed out leaves.
func TestProgress(t *testing.T) {
	unit := func(id string, independent, done bool, state stepState) *entry {
		e := entryWith(string(rune(state)), "-", migration.Change{Verb: migration.Delete, Ref: ref("Thing", id)})
		e.Unit.ID, e.Unit.Independent, e.done = id, independent, done
		return e
	}
	c := &chunk{entries: []*entry{
		unit("a", true, true, stepDone), unit("b", true, false, stepBegun), unit("c", true, false, stepNotBegun), unit("d", false, true, stepDone),
	}}
	rec := &recorder{journal: &journal{chunks: []*chunk{c}}}
	done, all, changed := rec.progress([]migration.Unit{{ID: "c", Independent: true}, {ID: "e", Independent: true}, {ID: "f"}})
	if done != 1 || all != 4 || !changed {
		t.Errorf("got %d of %d, changed %t; want 1 of 4, true", done, all, changed)
	}
	c.entries = c.entries[2:]
	if _, _, changed := rec.progress(nil); changed {
		t.Error("an independent unit that was not begun changed nothing")
	}
}

// TestLacksDryRun: a dry run that a webhook without sideEffects keeps from being asked
// says nothing about the object. Fails on the commit before: it counted as a refusal.
func TestLacksDryRun(t *testing.T) {
	kind := schema.GroupKind{Group: "eventing.knative.dev", Kind: "Trigger"}
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Knative": {"what the API server answers for Knative 0.12's webhook", apierrors.NewBadRequest(`admission webhook "webhook.eventing.knative.dev" does not support dry run`), true},
		"Refused": {"a refusal on the merits", apierrors.NewBadRequest("the filter is not valid"), false},
		"Invalid": {"an invalid object", apierrors.NewInvalid(kind, "a", nil), false},
		"Other":   {"no answer of the API server", errors.New("it does not support dry run"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lacksDryRun(tc.err); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// TestGoneForGood: an object whose namespace or kind is gone cannot be restored by
// another attempt. Fails on the commit before: the journal stayed open for ever.
func TestGoneForGood(t *testing.T) {
	resource := schema.GroupResource{Resource: "things"}
	terminating := apierrors.NewForbidden(resource, "a", errors.New("because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating"}}
	for name, tc := range map[string]struct {
		err     error
		forGood bool
	}{
		"Namespace":   {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), true},
		"Terminating": {terminating, true},
		"Forbidden":   {apierrors.NewForbidden(resource, "a", errors.New("no")), false},
		"Timeout":     {apierrors.NewTimeoutError("later", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := goneForGood(ref("Thing", "a"), tc.err)
			moved, ok := errors.AsType[*changedError](err)
			if got := ok && moved.forGood; got != tc.forGood {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestLastSharedRead: the pause between two reads ends early, once, when all units that have
// not ended wait for them. Fails on the commit before: the read is made after 0.5 s.
func TestLastSharedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedReads(func() *migration.Cluster { return nil })
		read := func() {
			_, err := migration.Shared(t.Context(), &fresh{shared: s, after: time.Now()}, "key", func(context.Context, *migration.Cluster) (int, error) { return 0, nil })
			if err != nil {
				t.Error(err)
			}
		}
		s.counted(2, 0)
		read()
		began := time.Now()
		go func() {
			time.Sleep(freshEvery / 5)
			s.counted(-1, 0) // the other unit has ended
		}()
		if read(); time.Since(began) != freshEvery/5 {
			t.Errorf("the last read began after %s, and nothing else was under way after %s", time.Since(began), freshEvery/5)
		}
		began = time.Now()
		if read(); time.Since(began) != freshEvery {
			t.Errorf("one more read began after %s: only one is early", time.Since(began))
		}
	})
}

// TestSharedReads: rechecks share reads, at most two a second of each key, that are at most
// 2 s old and not older than what their unit waited for.
func TestSharedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedReads(func() *migration.Cluster { return nil })
		reads := 0
		read := func(after time.Time) int {
			got, err := migration.Shared(t.Context(), &fresh{shared: s, after: after}, "key", func(context.Context, *migration.Cluster) (int, error) {
				reads++
				return reads, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if first, second := read(time.Time{}), read(time.Time{}); first != 1 || second != 1 {
			t.Error("two at once share one read")
		}
		began := time.Now()
		if got := read(began); got != 2 || time.Since(began) != freshEvery {
			t.Errorf("read %d after %s: one that waited until now needs one of after that, and not before 0.5 s passed", got, time.Since(began))
		}
		time.Sleep(freshFor)
		if got := read(began); got != 2 {
			t.Errorf("read %d: it is 2 s old", got)
		}
		time.Sleep(time.Millisecond)
		if got := read(began); got != 3 {
			t.Errorf("read %d: it was older than 2 s", got)
		}
		failing := errors.New("no")
		_, err := migration.Shared(t.Context(), &fresh{shared: s}, "other", func(context.Context, *migration.Cluster) (int, error) { return 0, failing })
		if !errors.Is(err, failing) {
			t.Errorf("got %v", err)
		}
		// What the end of one recheck cut off is no answer for another.
		ctx, cancel := context.WithCancel(t.Context())
		_, _ = migration.Shared(ctx, &fresh{shared: s}, "cut", func(ctx context.Context, _ *migration.Cluster) (int, error) { cancel(); return 0, ctx.Err() })
		got, err := migration.Shared(t.Context(), &fresh{shared: s}, "cut", func(context.Context, *migration.Cluster) (int, error) { return 7, nil })
		if got != 7 || err != nil {
			t.Errorf("got %d, %v", got, err)
		}
	})
}

// TestErrorsInWords: what a person is told of an error, and whether the server refused on the
// merits or the run only ended.
func TestErrorsInWords(t *testing.T) {
	thing := ref("Thing", "a")
	resource, kind := schema.GroupResource{Resource: "things"}, schema.GroupKind{Kind: "Thing"}
	rbac := apierrors.NewForbidden(resource, "a", errors.New(`User "x" cannot create resource "things"`))
	quota := apierrors.NewForbidden(resource, "a", errors.New("exceeded quota"))
	const refusedHint = "an admission policy, a quota or the schema refuses the object: change that, and run the job again"
	// Every error that is not known for something else may pass.
	const busyHint = "the API server did not answer well for a while: look at its health, and run the job again"
	for name, tc := range map[string]struct {
		err            error
		problem, hint  string
		refused, ended bool
	}{
		"Waited":     {&WaitError{Text: "a sign", Status: migration.Status{Message: "none", Hint: "look"}, After: time.Minute}, "gave up after 1m0s waiting for a sign: none", "look", false, false},
		"Failed":     {&WaitError{Text: "a sign", Status: migration.Status{Message: "bad", Hint: "look"}}, "waiting for a sign is in vain: bad", "look", false, false},
		"CutOff":     {&cutOffError{cause: &timeoutError{"the run", "--timeout", "5m"}, text: "a sign", status: migration.Status{Message: "none", Hint: "look"}}, "the run did not end within 5m (--timeout) while waiting for a sign: none", "look", false, true},
		"Moved":      {&changeError{migration.Delete, thing, &changedError{ref: thing, problem: "was edited"}}, "cannot delete it: Thing shop/a was edited", "look at the object, and run the job again: it plans afresh", false, false},
		"Permission": {rbac, rbac.Error(), "grant the missing verb to the account that runs the job, and run it again", true, false},
		"Quota":      {quota, quota.Error(), refusedHint, true, false},
		"Invalid":    {apierrors.NewInvalid(kind, "a", nil), apierrors.NewInvalid(kind, "a", nil).Error(), refusedHint, true, false},
		"BadRequest": {apierrors.NewBadRequest("no"), "no", refusedHint, true, false},
		"Acceptable": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotAcceptable, Message: "no"}}, "no", "", true, false},
		"Busy":       {apierrors.NewTooManyRequestsError("later"), "Too many requests: later", busyHint, false, false},
		"Named":      {k8sutil.Permanent(errors.New("Thing shop/a: is odd")), "is odd", "", false, false},
		"Signal":     {SignalError{Signal: 15}, SignalError{Signal: 15}.Error(), busyHint, false, true},
		"Locked":     {&LockedError{Holder: "b"}, `another run holds the lock: "b"`, busyHint, false, true},
		"Stopped":    {errStopped, errStopped.Error(), busyHint, false, true},
		"Canceled":   {context.Canceled, "context canceled", "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := problemOf(thing, tc.err); got != tc.problem {
				t.Errorf("problem %q", got)
			}
			if got := hintFor(tc.err); got != tc.hint {
				t.Errorf("hint %q", got)
			}
			if got := isRefusal(tc.err); got != tc.refused {
				t.Errorf("refused: %t", got)
			}
			if got := ended(tc.err); got != tc.ended {
				t.Errorf("only says that the run ended: %t", got)
			}
		})
	}
	if got := firstRefusal(errors.Join(errors.New("a"), quota, rbac)); !errors.Is(got, quota) {
		t.Errorf("the first refusal of several: %v", got)
	}
	if got := firstRefusal(errors.Join(errors.New("a"), errors.New("b"))); got != nil {
		t.Errorf("none is a refusal: %v", got)
	}
}
