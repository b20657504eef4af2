//go:build !race

// The order that testing/synctest gives to two goroutines is not known to the race detector.

package wait

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var (
	thingA, thingB = enginetest.Ref("Thing", "a"), enginetest.Ref("Thing", "b")
	forbidden      = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("no"))
)

func within(c migration.Condition, limit time.Duration) migration.Condition {
	c.Timeout = limit
	return c
}

// TestWait holds when a wait ends, and what it says then.
func TestWait(t *testing.T) {
	over := errors.New("over")
	for name, tc := range map[string]struct {
		reason     string
		conditions []migration.Condition
		// becomes is what others write into a, second by second.
		becomes []string
		ends    time.Duration
		fault   bool
		// began is how long ago the limits began to count.
		began time.Duration
		took  time.Duration
		// failed, after and cutOff are what the error says.
		failed, cutOff, other bool
		after                 time.Duration
	}{
		"Nothing":     {reason: "nothing is waited for"},
		"Met":         {reason: "it holds", conditions: []migration.Condition{enginetest.Shows(thingA, "old")}},
		"Becomes":     {reason: "it becomes true", conditions: []migration.Condition{enginetest.Shows(thingA, "ready")}, becomes: []string{"", "ready"}, took: 2 * time.Second},
		"Both":        {reason: "all must be true", conditions: []migration.Condition{enginetest.Shows(thingA, "ready"), enginetest.Shows(thingB, "old")}, becomes: []string{"ready"}, took: time.Second},
		"Failed":      {reason: "it cannot become true any more", conditions: []migration.Condition{enginetest.Shows(thingB, "old"), within(enginetest.Shows(thingA, "ready"), time.Hour)}, becomes: []string{"bad"}, took: time.Second, failed: true},
		"Limit":       {reason: "its limit", conditions: []migration.Condition{within(enginetest.Shows(thingA, "ready"), time.Minute)}, took: time.Minute, failed: true, after: time.Minute},
		"Sooner":      {reason: "the sooner of two limits", conditions: []migration.Condition{within(enginetest.Shows(thingA, "ready"), time.Minute), within(enginetest.Shows(thingB, "ready"), time.Second)}, took: time.Second, failed: true, after: time.Second},
		"SoonerFirst": {reason: "in whatever order they come", conditions: []migration.Condition{within(enginetest.Shows(thingB, "ready"), time.Second), within(enginetest.Shows(thingA, "ready"), time.Minute)}, took: time.Second, failed: true, after: time.Second},
		"NoLimit":     {reason: "none without a limit", conditions: []migration.Condition{enginetest.Shows(thingA, "ready")}, ends: time.Hour, took: time.Hour, cutOff: true},
		"Since":       {reason: "a limit counts from the change", conditions: []migration.Condition{within(enginetest.Shows(thingA, "ready"), time.Minute)}, began: 50 * time.Second, took: 10 * time.Second, failed: true, after: time.Minute},
		"MetLate":     {reason: "what holds has no limit", conditions: []migration.Condition{within(enginetest.Shows(thingA, "old"), time.Second)}, began: time.Hour},
		"CutOff":      {reason: "the run ends: the first one that does not hold is named", conditions: []migration.Condition{enginetest.Shows(thingB, "old"), enginetest.Shows(thingA, "ready")}, ends: time.Second, took: time.Second, cutOff: true},
		"NotListed":   {reason: "the objects cannot be listed", conditions: []migration.Condition{enginetest.Shows(thingA, "ready")}, fault: true, other: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := enginetest.NewAPI(t, enginetest.Make("Thing", "a", "old"), enginetest.Make("Thing", "b", "old"))
				if tc.fault {
					api.Fail(enginetest.Fault{Verb: "list", Err: forbidden})
				}
				ctx, end := context.WithCancelCause(t.Context())
				go func() {
					for _, value := range tc.becomes {
						time.Sleep(time.Second)
						api.Edit(thingA, enginetest.Set(value))
					}
					if tc.ends > 0 {
						time.Sleep(tc.ends)
						end(over)
					}
				}()
				began := time.Now()
				err := New(t.Context(), api.Cluster()).Wait(ctx, tc.conditions, began.Add(-tc.began))
				took := time.Since(began)
				failed, isFailed := errors.AsType[*Error](err)
				cut, isCut := errors.AsType[*CutOffError](err)
				if took != tc.took || isFailed != tc.failed || isCut != tc.cutOff || (err != nil && !isFailed && !isCut) != tc.other {
					t.Errorf("%s: after %s: %v", tc.reason, took, err)
				}
				if isFailed && (failed.After != tc.after || failed.Message == "" || failed.Note == "") {
					t.Errorf("%s: %+v", tc.reason, failed)
				}
				if isCut && (!errors.Is(err, over) || cut.Status.Message == "") {
					t.Errorf("%s: %+v", tc.reason, cut)
				}
			})
		})
	}
}

// TestOneWatch: there is one list and one watch for each kind and namespace, however many wait, and
// whoever waits hears of the objects that it looks at.
func TestOneWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := enginetest.NewAPI(t, enginetest.Make("Thing", "a", "old"), enginetest.Make("Thing", "b", "old"))
		w := New(t.Context(), api.Cluster())
		evaluated := map[string]int{}
		counted := func(name string, c migration.Condition) migration.Condition {
			eval := c.Eval
			c.Eval = func(v migration.View) migration.Status { evaluated[name]++; return eval(v) }
			return c
		}
		all := enginetest.Shows(thingA, "ready")
		all.On = []migration.Subject{{GroupKind: thingA.GroupKind(), Namespace: "shop"}}
		done := make(chan error, 3)
		for name, c := range map[string]migration.Condition{"a": enginetest.Shows(thingA, "ready"), "b": enginetest.Shows(thingB, "ready"), "all": all} {
			go func() { done <- w.Wait(t.Context(), []migration.Condition{counted(name, c)}, time.Now()) }()
			time.Sleep(time.Second)
		}
		clear(evaluated)
		api.Edit(thingB, enginetest.Set("almost"))
		time.Sleep(time.Second)
		if diff := cmp.Diff(map[string]int{"b": 1, "all": 1}, evaluated); diff != "" {
			t.Errorf("evaluated again (-want +got):\n%s", diff)
		}
		api.Edit(thingA, enginetest.Set("ready"))
		api.Edit(thingB, enginetest.Set("ready"))
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		verbs := map[string]int{}
		for _, a := range api.Actions() {
			verbs[a.GetVerb()]++
		}
		if diff := cmp.Diff(map[string]int{"list": 1, "watch": 1}, verbs); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if len(w.subscribers) != 0 {
			t.Errorf("who waits no more still subscribes: %v", w.subscribers)
		}
	})
}

// TestKinds holds what becomes of conditions on kinds that are not served, or of which nobody
// knows.
func TestKinds(t *testing.T) {
	other := migration.Subject{GroupKind: schema.GroupKind{Group: "example.com", Kind: "Other"}, Namespace: "shop", Name: "a"}
	ready := enginetest.Shows(thingA, "ready")
	both := ready
	both.On = append(slices.Clone(both.On), other)
	installed := both
	installed.Unserved = func(gk schema.GroupKind) string { return "Install " + gk.Kind + "." }
	optional := ready
	optional.OnIfServed = []migration.Subject{other}
	for name, tc := range map[string]struct {
		reason    string
		condition migration.Condition
		broken    bool
		// message and hint are of the failure, "" if the condition comes true.
		message, hint string
	}{
		"Unserved":  {"it cannot come true", both, false, "the API server serves no kind Other (example.com)", "Install what serves it. Then run the job again. To see what is served: kubectl api-resources --api-group=example.com"},
		"Installed": {"the condition knows what installs the kind", installed, false, "the API server serves no kind Other (example.com)", "Install Other. Then run the job again. To see what is served: kubectl api-resources --api-group=example.com"},
		"Optional":  {"there are no objects of it, and that is all", optional, false, "", ""},
		"Repeated":  {"discovery that failed says nothing, and is asked again", ready, true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := enginetest.NewAPI(t, enginetest.Make("Thing", "a", "ready"))
				if tc.broken {
					api.BreakDiscovery(2)
					api.Connection.Read = func(ctx context.Context, op func(context.Context) error) error {
						return k8sutil.Retry(ctx, k8sutil.RetryBudget, nil, op)
					}
				}
				began := time.Now()
				err := New(t.Context(), api.Cluster()).Wait(t.Context(), []migration.Condition{tc.condition}, began)
				failed, isFailed := errors.AsType[*Error](err)
				switch {
				case err == nil && tc.message == "":
				case !isFailed || failed.Message != tc.message || migration.Advice{Note: failed.Note, Command: failed.Command}.String() != tc.hint || failed.After != 0 || !time.Now().Equal(began):
					t.Errorf("%s: after %s: %+v", tc.reason, time.Since(began), err)
				}
			})
		})
	}
	t.Run("Unknown", func(t *testing.T) {
		api := enginetest.NewAPI(t)
		api.BreakDiscovery(1)
		err := New(t.Context(), api.Cluster()).Wait(t.Context(), []migration.Condition{ready}, time.Now())
		if _, isFailed := errors.AsType[*Error](err); err == nil || isFailed {
			t.Errorf("discovery that failed is an error of the run, and says nothing of the kind: %v", err)
		}
	})
}

// TestThousandWait: however many wait, discovery is asked once, and nothing is read but one list
// and one watch.
func TestThousandWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 1000
		var objects []*unstructured.Unstructured
		for i := range many {
			objects = append(objects, enginetest.Make("Thing", fmt.Sprint(i), "ready"))
		}
		api := enginetest.NewAPI(t, objects...)
		w := New(t.Context(), api.Cluster())
		waitFor := func(obj *unstructured.Unstructured) {
			if err := w.Wait(t.Context(), []migration.Condition{enginetest.Shows(enginetest.RefTo(obj), "ready")}, time.Now()); err != nil {
				t.Error(err)
			}
		}
		waitFor(objects[0])
		synctest.Wait() // until its watch has begun
		first := api.Requests()
		for _, obj := range objects[1:] {
			waitFor(obj)
		}
		synctest.Wait()
		if got := api.Requests(); got != first {
			t.Errorf("%d requests for the first, %d for all", first, got)
		}
	})
}

// TestClusterWide: one who looks at all namespaces hears of an object in any of them.
func TestClusterWide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := enginetest.NewAPI(t, enginetest.Make("Thing", "a", "old"))
		w := New(t.Context(), api.Cluster())
		c := migration.Condition{Text: "it", On: []migration.Subject{{GroupKind: thingA.GroupKind()}}, Eval: func(v migration.View) migration.Status {
			for _, obj := range v.List(thingA.GroupKind(), "") {
				if enginetest.Value(obj) == "ready" {
					return migration.Status{State: migration.Met}
				}
			}
			return migration.Status{}
		}}
		go func() {
			time.Sleep(time.Second)
			api.Edit(thingA, enginetest.Set("ready"))
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Wait(ctx, []migration.Condition{c}, time.Now()); err != nil {
			t.Error(err)
		}
	})
}

// TestView holds which objects a condition sees.
func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := enginetest.Make("Thing", "a", "other")
		other.SetNamespace("bar")
		api := enginetest.NewAPI(t, enginetest.Make("Thing", "a", "old"), other)
		w := New(t.Context(), api.Cluster())
		if w.Get(thingA.Subject()) != nil || w.List(thingA.GroupKind(), "shop") != nil {
			t.Error("what nobody has listed is not known")
		}
		if _, err := w.cluster.Collection(t.Context(), thingA.Resource, ""); err != nil {
			t.Fatal(err)
		}
		if w.Get(thingA.Subject()) != nil || w.List(thingA.GroupKind(), "shop") != nil {
			t.Error("what the plan has listed is no condition's before one asks for the kind")
		}
		if _, _, err := w.resource(t.Context(), thingA.GroupKind()); err != nil {
			t.Fatal(err)
		}
		if got := enginetest.Value(w.Get(thingA.Subject())); got != "old" {
			t.Errorf("got %s", got)
		}
		for namespace, want := range map[string]int{"": 2, "shop": 1, "none": 0} {
			if got := w.List(thingA.GroupKind(), namespace); len(got) != want {
				t.Errorf("in %q: %d objects, want %d", namespace, len(got), want)
			}
		}
	})
}

// TestWatched holds what rechecks read through one watch.
func TestWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := enginetest.Make("Thing", "a", "other")
		other.SetNamespace("bar")
		api := enginetest.NewAPI(t, enginetest.Make("Thing", "a", "old"), other)
		cluster := api.Cluster()
		if _, err := cluster.List(t.Context(), thingA.Resource, "", migration.ListOptions{}); err != nil { // by the plan
			t.Fatal(err)
		}
		api.Edit(thingA, enginetest.Set("since the plan"))
		f := NewFresh(NewSharedReads(nil), New(t.Context(), cluster), time.Time{})
		one, err := f.WatchedOne(t.Context(), thingA)
		if err != nil || enginetest.Value(one) != "since the plan" {
			t.Errorf("what the plan has listed is as old as the plan: %v, %v", one, err)
		}
		api.Edit(thingA, enginetest.Set("watched"))
		time.Sleep(time.Second)
		if one, err = f.WatchedOne(t.Context(), thingA); err != nil || enginetest.Value(one) != "watched" {
			t.Errorf("got %v, %v", one, err)
		}
		for namespace, want := range map[string][]string{"": {"bar", "shop"}, "shop": {"shop"}, "none": nil} {
			var got []string
			if err := f.WatchedEach(t.Context(), thingA.Resource, namespace, func(obj *unstructured.Unstructured) { got = append(got, obj.GetNamespace()) }); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("in %q (-want +got):\n%s", namespace, diff)
			}
			all, err := f.Watched(t.Context(), thingA.Resource, namespace)
			if err != nil || len(all) != len(want) {
				t.Errorf("in %q: %v, %v", namespace, all, err)
			}
		}
		lists := 0
		for _, a := range api.Actions() {
			if a.GetVerb() == "list" {
				lists++
			}
		}
		if lists != 2 {
			t.Errorf("%d lists: the plan's, and one when the watch begins", lists)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		api := enginetest.NewAPI(t)
		f := NewFresh(NewSharedReads(nil), New(t.Context(), api.Cluster()), time.Time{})
		api.Fail(enginetest.Fault{Verb: "list", Err: forbidden}, enginetest.Fault{Verb: "list", Err: forbidden}, enginetest.Fault{Verb: "list", Err: forbidden}, enginetest.Fault{Verb: "list"}, enginetest.Fault{Verb: "list", Err: forbidden})
		_, one := f.WatchedOne(t.Context(), thingA)
		_, all := f.Watched(t.Context(), thingA.Resource, "shop")
		each := f.WatchedEach(t.Context(), thingA.Resource, "shop", func(*unstructured.Unstructured) {})
		_, again := f.WatchedOne(t.Context(), thingA)
		for i, err := range []error{one, all, each, again} {
			if err == nil {
				t.Errorf("%d: what cannot be listed is not absent", i)
			}
		}
	})
}
