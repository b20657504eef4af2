package write_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/actortest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var (
	a         = enginetest.Ref("Thing", "a")
	things    = schema.GroupResource{Resource: "things"}
	busy      = apierrors.NewTooManyRequestsError("later")
	forbidden = apierrors.NewForbidden(things, "a", errors.New("no"))
	exists    = apierrors.NewAlreadyExists(things, "a")
	notFound  = apierrors.NewNotFound(things, "a")
)

func thing(value string) *unstructured.Unstructured { return enginetest.Make("Thing", "a", value) }

func marked(value, mark string) *unstructured.Unstructured {
	obj := thing(value)
	obj.SetAnnotations(map[string]string{enginetest.Names.Mark(): mark})
	return obj
}

func going(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj.SetFinalizers([]string{"f"})
	obj.SetDeletionTimestamp(new(metav1.Now()))
	return obj
}

// attempt notes what a change is told of its requests: "s" for each that is sent, "r" when none had
// an effect.
func attempt(told *string) write.Attempt {
	return write.Attempt{Sending: func() { *told += "s" }, Refused: func() { *told += "r" }}
}

// kind is what an error says: "" for none, "changed" for an object of somebody else's.
func kind(err error) string {
	_, changed := errors.AsType[*write.ChangedError](err)
	switch {
	case err == nil:
		return ""
	case changed:
		return "changed"
	}
	return "failed"
}

// TestCreateOnce holds that a creation has one effect, whatever happens to its answers.
func TestCreateOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		before *unstructured.Unstructured
		faults []enginetest.Fault
		mark   string
		// told is what the change learns of its requests.
		told    string
		existed bool
		err     string
		value   string
	}{
		"Created":          {reason: "nothing is in the way", mark: "m", told: "s", value: "new"},
		"Repeated":         {reason: "a server that is busy is asked again", mark: "m", faults: []enginetest.Fault{{Verb: "create", Name: "a", Err: busy}}, told: "ss", value: "new"},
		"LostAnswer":       {reason: "an answer was lost: the mark tells that it is ours", mark: "m", faults: []enginetest.Fault{{Verb: "create", Name: "a", Err: busy, Lost: true}}, told: "ss", value: "new"},
		"LostNoMark":       {reason: "without a mark, the content does", faults: []enginetest.Fault{{Verb: "create", Name: "a", Err: busy, Lost: true}}, told: "ss", value: "new"},
		"Ours":             {reason: "an earlier process has made it", before: marked("new", "m"), mark: "m", told: "s", existed: true, value: "new"},
		"OursEdited":       {reason: "also if somebody has edited it since", before: marked("edited", "m"), mark: "m", told: "s", existed: true, value: "edited"},
		"Theirs":           {reason: "another mark is somebody else's", before: marked("new", "n"), mark: "m", told: "sr", err: "changed", value: "new"},
		"Equal":            {reason: "without a mark, an equal object will do", before: thing("new"), told: "s", existed: true, value: "new"},
		"Different":        {reason: "and a different one will not", before: thing("theirs"), told: "sr", err: "changed", value: "theirs"},
		"EqualGoing":       {reason: "nor one that is being deleted", before: going(thing("new")), told: "sr", err: "changed", value: "new"},
		"OursGoing":        {reason: "a marked one is ours, even if it is being deleted", before: going(marked("new", "m")), mark: "m", told: "s", existed: true, value: "new"},
		"GoneMeanwhile":    {reason: "it existed, and then it did not: asked again", mark: "m", faults: []enginetest.Fault{{Verb: "create", Name: "a", Err: exists}}, told: "ss", value: "new"},
		"Conflict":         {reason: "a conflict is looked at, too", before: marked("new", "m"), mark: "m", faults: []enginetest.Fault{{Verb: "create", Name: "a", Err: apierrors.NewConflict(things, "a", nil)}}, told: "s", existed: true, value: "new"},
		"Unread":           {reason: "what exists cannot be read", before: thing("theirs"), faults: []enginetest.Fault{{Verb: "get", Name: "a", Err: forbidden}}, told: "s", err: "failed", value: "theirs"},
		"Refused":          {reason: "a refusal had no effect", faults: []enginetest.Fault{{Verb: "create", Name: "a", Err: forbidden}}, told: "sr", err: "failed", value: "gone"},
		"RefusedAfterLoss": {reason: "after a lost answer that is not certain", faults: []enginetest.Fault{{Verb: "create", Name: "a", Err: busy}, {Verb: "create", Name: "a", Err: forbidden}}, told: "ss", err: "failed", value: "gone"},
		"LostTheirs":       {reason: "nor is it when somebody else's is found", before: thing("theirs"), faults: []enginetest.Fault{{Verb: "create", Name: "a", Err: busy}}, told: "ss", err: "changed", value: "theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := enginetest.NewAPI(t)
				if tc.before != nil {
					api.Put(tc.before)
				}
				api.Fail(tc.faults...)
				w := actortest.New(api, &enginetest.Job{})
				obj := thing("new")
				if tc.mark != "" {
					obj = marked("new", tc.mark)
				}
				told := ""
				live, existed, err := w.Writer.CreateOnce(t.Context(), a, obj, tc.mark, attempt(&told))
				if told != tc.told || existed != tc.existed || kind(err) != tc.err || enginetest.Value(api.Live(a)) != tc.value {
					t.Errorf("%s: told %q, existed %t, %v, there is %q", tc.reason, told, existed, err, enginetest.Value(api.Live(a)))
				}
				if err == nil && live.GetUID() != api.Live(a).GetUID() {
					t.Errorf("%s: it returns %v", tc.reason, live)
				}
			})
		})
	}
}

// TestDelete holds that a deletion deletes the object that it was decided on, and no other.
func TestDelete(t *testing.T) {
	edit := func(api *enginetest.API) func() { return func() { api.Edit(a, enginetest.Set("edited")) } }
	status := func(obj *unstructured.Unstructured) { obj.Object["status"] = "x" }
	for name, tc := range map[string]struct {
		reason string
		before *unstructured.Unstructured
		since  func(api *enginetest.API)
		// latest is the object as the unit itself left it; nil: it did not write it.
		latest func(pre *unstructured.Unstructured) *unstructured.Unstructured
		told   string
		result string
		err    string
		value  string
	}{
		"Deleted": {reason: "nothing is in the way", before: thing("old"), told: "s", result: "done", value: "gone"},
		"Absent":  {reason: "there was nothing", result: "unchanged", value: "gone"},
		"Gone":    {reason: "somebody has deleted it", before: thing("old"), since: func(api *enginetest.API) { api.Remove(a) }, told: "sr", result: "unchanged", value: "gone"},
		"Lost": {reason: "the answer was lost: it is this deletion that the second attempt finds", before: thing("old"), since: func(api *enginetest.API) {
			api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: busy, Lost: true})
		}, told: "ss", result: "done", value: "gone"},
		"Status": {reason: "a controller has written its status: that is no edit", before: thing("old"), since: func(api *enginetest.API) { api.Edit(a, status) }, told: "ss", result: "done", value: "gone"},
		"Edited": {reason: "somebody has edited it: it stays", before: thing("old"), since: func(api *enginetest.API) { edit(api)() }, told: "sr", result: "done", err: "changed", value: "edited"},
		"EditedAfter": {reason: "after an attempt whose answer was lost, an effect is not ruled out", before: thing("old"), since: func(api *enginetest.API) {
			api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: busy}, enginetest.Fault{Verb: "delete", Name: "a", Before: edit(api)})
		}, told: "ss", result: "done", err: "changed", value: "edited"},
		"Other": {reason: "another object of its name came later: it stays", before: thing("old"), since: func(api *enginetest.API) {
			api.Remove(a)
			api.Put(thing("theirs"))
		}, told: "sr", result: "unchanged", value: "theirs"},
		"OtherAfter": {reason: "also after an attempt of this deletion", before: thing("old"), since: func(api *enginetest.API) {
			api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: busy, Lost: true}, enginetest.Fault{Verb: "delete", Name: "a", Before: func() { api.Put(thing("theirs")) }})
		}, told: "ss", result: "done", value: "theirs"},
		"Going": {reason: "somebody else deletes it", before: thing("old"), since: func(api *enginetest.API) { api.Edit(a, func(obj *unstructured.Unstructured) { going(obj) }) }, told: "sr", result: "unchanged", value: "old"},
		"GoingAfter": {reason: "an attempt whose answer was lost began it", before: going(thing("old")), since: func(api *enginetest.API) {
			api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: busy, Before: func() { api.Edit(a, status) }})
		}, told: "sss", result: "done", value: "old"},
		"Unread": {reason: "what it is now cannot be read", before: thing("old"), since: func(api *enginetest.API) {
			edit(api)()
			api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden})
		}, told: "s", result: "done", err: "failed", value: "edited"},
		"Refused": {reason: "a refusal had no effect", before: thing("old"), since: func(api *enginetest.API) { api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: forbidden}) }, told: "sr", result: "done", err: "failed", value: "old"},
		"RefusedAfter": {reason: "after a lost answer that is not certain", before: thing("old"), since: func(api *enginetest.API) {
			api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: busy}, enginetest.Fault{Verb: "delete", Name: "a", Err: forbidden})
		}, told: "ss", result: "done", err: "failed", value: "old"},
		"Latest": {reason: "what the unit itself wrote is deleted at that version, with one request", before: thing("old"), since: func(api *enginetest.API) { api.Edit(a, status) }, latest: func(*unstructured.Unstructured) *unstructured.Unstructured { return nil }, told: "s", result: "done", value: "gone"},
		"LatestGoing": {
			reason: "its own last write has shown that somebody else deletes it", before: thing("old"), told: "", result: "unchanged", value: "old",
			latest: func(pre *unstructured.Unstructured) *unstructured.Unstructured { return going(pre.DeepCopy()) },
		},
		"LatestOther": {
			reason: "one of another object says nothing", before: thing("old"), told: "s", result: "done", value: "gone",
			latest: func(pre *unstructured.Unstructured) *unstructured.Unstructured {
				other := going(pre.DeepCopy())
				other.SetUID("other")
				other.SetResourceVersion("99")
				return other
			},
		},
		"LatestEdited": {
			reason: "one with an edit does not make that edit known", before: thing("old"), since: func(api *enginetest.API) { edit(api)() }, told: "sr", result: "done", err: "changed", value: "edited",
			latest: func(*unstructured.Unstructured) *unstructured.Unstructured { return nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := enginetest.NewAPI(t)
				var pre, latest *unstructured.Unstructured
				if tc.before != nil {
					pre = api.Put(tc.before)
				}
				if tc.since != nil {
					tc.since(api)
				}
				if tc.latest != nil {
					if latest = tc.latest(pre); latest == nil {
						latest = api.Live(a)
					}
				}
				told := ""
				result, err := actortest.New(api, &enginetest.Job{}).Writer.Delete(t.Context(), a, pre, latest, attempt(&told))
				if told != tc.told || result != tc.result || kind(err) != tc.err || enginetest.Value(api.Live(a)) != tc.value {
					t.Errorf("%s: told %q, result %q, %v, there is %q", tc.reason, told, result, err, enginetest.Value(api.Live(a)))
				}
			})
		})
	}
}

// orphaner is a job that spares what its Things own.
type orphaner struct{ enginetest.Job }

func (*orphaner) Orphans(ref migration.Ref) bool { return ref.Kind == "Thing" }

// TestPropagation: what a deleted object owns goes with it, unless the job spares it.
func TestPropagation(t *testing.T) {
	api := enginetest.NewAPI(t)
	plain, sparing := actortest.New(api, &enginetest.Job{}), actortest.New(api, &orphaner{})
	for name, tc := range map[string]struct {
		reason string
		got    *metav1.DeletionPropagation
		want   metav1.DeletionPropagation
	}{
		"Job":      {"a job that says nothing", plain.Writer.Propagation(a), metav1.DeletePropagationBackground},
		"Orphaner": {"a job that spares the dependents of this kind", sparing.Writer.Propagation(a), metav1.DeletePropagationOrphan},
		"Other":    {"and not of another", sparing.Writer.Propagation(enginetest.Ref("Broker", "a")), metav1.DeletePropagationBackground},
	} {
		if *tc.got != tc.want {
			t.Errorf("%s: %s: got %s", name, tc.reason, *tc.got)
		}
	}
}

// TestGet holds what a read past every cache tells.
func TestGet(t *testing.T) {
	api := enginetest.NewAPI(t, thing("old"))
	api.Edit(a, func(obj *unstructured.Unstructured) {
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m"}})
	})
	w := actortest.New(api, &enginetest.Job{})
	for name, tc := range map[string]struct {
		reason      string
		ref         migration.Ref
		subresource []string
		fault       error
		value       string
		fails       bool
		asked       string
	}{
		"There":       {reason: "an object", ref: a, value: "old"},
		"Gone":        {reason: "no object is no error", ref: enginetest.Ref("Thing", "b"), value: "gone"},
		"Failed":      {reason: "an error is not a missing object", ref: a, fault: forbidden, value: "gone", fails: true},
		"Subresource": {reason: "a subresource is asked for", ref: a, subresource: []string{"scale"}, value: "old", asked: "scale"},
		"Empty":       {reason: "an empty one is none", ref: a, subresource: []string{""}, value: "old"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.fault != nil {
				api.Fail(enginetest.Fault{Verb: "get", Name: tc.ref.Name, Err: tc.fault})
			}
			obj, err := w.Writer.Get(t.Context(), tc.ref, tc.subresource...)
			actions := api.Actions()
			if enginetest.Value(obj) != tc.value || (err != nil) != tc.fails || actions[len(actions)-1].GetSubresource() != tc.asked {
				t.Errorf("%s: got %v, %v", tc.reason, obj, err)
			}
			if obj != nil && obj.GetManagedFields() != nil {
				t.Errorf("%s: nobody reads managedFields", tc.reason)
			}
		})
	}
}

func pod(name, app string) *unstructured.Unstructured {
	obj := enginetest.Make("Pod", name, "")
	obj.SetLabels(map[string]string{"app": app})
	return obj
}

// TestRestart holds which pods are deleted: those that were named, and no other of their name.
func TestRestart(t *testing.T) {
	p := enginetest.RefTo(pod("p", ""))
	for name, tc := range map[string]struct {
		reason string
		since  func(api *enginetest.API)
		fails  bool
		left   []string
	}{
		"Deleted": {reason: "the pods of the Deployment", since: func(*enginetest.API) {}, left: []string{"other"}},
		"Gone":    {reason: "one that is gone is replaced already", since: func(api *enginetest.API) { api.Remove(p) }, left: []string{"other"}},
		"GoneMeanwhile": {reason: "also if it goes meanwhile", since: func(api *enginetest.API) {
			api.Fail(enginetest.Fault{Verb: "delete", Name: "p", Before: func() { api.Remove(p) }})
		}, left: []string{"other"}},
		"Other": {reason: "another pod of that name, as of a StatefulSet, stays", since: func(api *enginetest.API) {
			api.Fail(enginetest.Fault{Verb: "delete", Name: "p", Before: func() {
				api.Remove(p)
				api.Put(pod("p", "x"))
			}})
		}, left: []string{"other", "p"}},
		"Conflict": {reason: "a conflict over the same pod is repeated", since: func(api *enginetest.API) {
			api.Fail(enginetest.Fault{Verb: "delete", Name: "p", Err: apierrors.NewConflict(things, "p", nil)})
		}, left: []string{"other"}},
		"ConflictGone": {reason: "a conflict over one that is gone is none", since: func(api *enginetest.API) {
			api.Fail(enginetest.Fault{Verb: "delete", Name: "p", Err: apierrors.NewConflict(things, "p", nil), Before: func() { api.Remove(p) }})
		}, left: []string{"other"}},
		"Refused":  {reason: "a refusal is an error", since: func(api *enginetest.API) { api.Fail(enginetest.Fault{Verb: "delete", Name: "p", Err: forbidden}) }, fails: true, left: []string{"other", "p"}},
		"Unlisted": {reason: "without a list nothing is deleted", since: func(api *enginetest.API) { api.Fail(enginetest.Fault{Verb: "list", Err: forbidden}) }, fails: true, left: []string{"other", "p"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := enginetest.NewAPI(t, pod("p", "x"), pod("other", "y"))
				w := actortest.New(api, &enginetest.Job{})
				deployment := enginetest.Make("Deployment", "d", "")
				deployment.Object["spec"] = map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}}}
				uids, err := w.Writer.PodsOf(t.Context(), deployment, nil)
				if err != nil || len(uids) != 1 {
					t.Fatal(uids, err)
				}
				tc.since(api)
				if err := w.Writer.Restart(t.Context(), enginetest.Ref("Deployment", "d"), append(uids, "gone")); (err != nil) != tc.fails {
					t.Errorf("%s: %v", tc.reason, err)
				}
				var left []string
				for _, name := range []string{"other", "p"} {
					if api.Live(enginetest.RefTo(pod(name, ""))) != nil {
						left = append(left, name)
					}
				}
				if diff := cmp.Diff(tc.left, left); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestPodsOf: the pods that a Deployment selects, and of those the wanted ones.
func TestPodsOf(t *testing.T) {
	api := enginetest.NewAPI(t, pod("p", "x"), pod("q", "x"), pod("other", "y"))
	w := actortest.New(api, &enginetest.Job{})
	deployment := enginetest.Make("Deployment", "d", "")
	deployment.Object["spec"] = map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}}}
	uids, err := w.Writer.PodsOf(t.Context(), deployment, func(pod *unstructured.Unstructured) bool { return pod.GetName() == "q" })
	if diff := cmp.Diff([]types.UID{api.Live(enginetest.RefTo(pod("q", ""))).GetUID()}, uids); diff != "" || err != nil {
		t.Errorf("-want +got:\n%s%v", diff, err)
	}
	for name, selector := range map[string]any{"NoMap": "x", "NoSelector": map[string]any{"matchLabels": int64(7)}, "Odd": map[string]any{"matchLabels": map[string]any{"app": "no label!"}}} {
		deployment.Object["spec"] = map[string]any{"selector": selector}
		if uids, err := w.Writer.PodsOf(t.Context(), deployment, nil); err == nil {
			t.Errorf("%s: a selector that cannot be read selects %v", name, uids)
		}
	}
}

// TestRecreate holds that what is created again has the owners that live now and the finalizers
// that it had.
func TestRecreate(t *testing.T) {
	owner := func(kind, name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: name, UID: uid}
	}
	for name, tc := range map[string]struct {
		reason string
		owner  metav1.OwnerReference
		// restored are UIDs of objects that the run deletes.
		restored types.UID
		faults   func(api *enginetest.API) []enginetest.Fault
		// want is the UID of the owner; "" if there is none.
		want     types.UID
		warns    bool
		err      string
		existing *unstructured.Unstructured
	}{
		"Lives":       {reason: "the owner lives", owner: owner("Broker", "default", "b"), want: "b"},
		"Restored":    {reason: "the owner was restored, and has a new UID", owner: owner("Broker", "default", "former"), restored: "former", want: "b"},
		"Other":       {reason: "another one of its name is no owner", owner: owner("Broker", "default", "former"), warns: true},
		"Gone":        {reason: "the owner is gone: the garbage collector would delete the object at once", owner: owner("Broker", "gone", "former"), warns: true},
		"ClusterWide": {reason: "the owner has no namespace", owner: owner("Zone", "z", "z"), want: "z"},
		"NotServed":   {reason: "its kind is not served any more", owner: owner("Former", "default", "former"), warns: true},
		"NoVersion":   {reason: "a reference that cannot be read stays", owner: metav1.OwnerReference{APIVersion: "a/b/c", Kind: "Broker", Name: "default", UID: "b"}, want: "b"},
		"Unread": {
			reason: "an owner that may not be read keeps its reference", owner: owner("Broker", "default", "b"),
			faults: func(*enginetest.API) []enginetest.Fault {
				return []enginetest.Fault{{Verb: "get", Name: "default", Err: forbidden}}
			}, want: "b",
		},
		"UnreadRestored": {
			reason: "but one that this run restores must be known", owner: owner("Broker", "default", "former"), restored: "former",
			faults: func(*enginetest.API) []enginetest.Fault {
				return []enginetest.Fault{{Verb: "get", Name: "default", Err: forbidden}}
			}, err: "failed",
		},
		"Refused": {
			reason: "a creation that is refused", owner: owner("Broker", "default", "b"),
			faults: func(*enginetest.API) []enginetest.Fault {
				return []enginetest.Fault{{Verb: "create", Name: "a", Err: forbidden}}
			}, err: "failed",
		},
		"Stripped": {
			reason: "an admission webhook has removed the finalizer: it is added", owner: owner("Broker", "default", "b"), want: "b",
			existing: func() *unstructured.Unstructured {
				obj := thing("old")
				obj.SetOwnerReferences([]metav1.OwnerReference{owner("Broker", "default", "b")})
				return obj
			}(),
		},
		"StrippedConflict": {
			reason: "also if the object changes meanwhile", owner: owner("Broker", "default", "b"), want: "b", existing: thing("old"),
			faults: func(api *enginetest.API) []enginetest.Fault {
				return []enginetest.Fault{{Verb: "patch", Name: "a", Before: func() {
					api.Edit(a, func(obj *unstructured.Unstructured) {
						obj.SetOwnerReferences([]metav1.OwnerReference{owner("Broker", "default", "b")})
					})
				}}}
			},
		},
		"StrippedOther": {
			reason: "but not to another object", owner: owner("Broker", "default", "b"), existing: thing("old"), err: "changed",
			faults: func(api *enginetest.API) []enginetest.Fault {
				return []enginetest.Fault{{Verb: "patch", Name: "a", Before: func() {
					api.Remove(a)
					api.Put(thing("theirs"))
				}}}
			},
		},
		"StrippedGone": {
			reason: "nor to one that is gone", owner: owner("Broker", "default", "b"), existing: thing("old"), err: "failed",
			faults: func(api *enginetest.API) []enginetest.Fault {
				return []enginetest.Fault{{Verb: "patch", Name: "a", Err: apierrors.NewConflict(things, "a", nil), Before: func() { api.Remove(a) }}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker, zone := enginetest.Make("Broker", "default", ""), enginetest.Make("Zone", "z", "")
				broker.SetUID("b")
				zone.SetUID("z")
				zone.SetNamespace("")
				api := enginetest.NewAPI(t, broker, zone)
				if tc.existing != nil {
					api.Put(tc.existing)
				}
				w := actortest.New(api, &enginetest.Job{})
				w.Writer.Restored = func(uid types.UID) bool { return uid == tc.restored }
				if tc.faults != nil {
					api.Fail(tc.faults(api)...)
				}
				obj := thing("old")
				obj.SetFinalizers([]string{"f"})
				obj.SetOwnerReferences([]metav1.OwnerReference{tc.owner})
				_, existed, err := w.Writer.Recreate(t.Context(), a, obj, write.NoAttempt)
				if kind(err) != tc.err || (len(w.Findings.All()) > 0) != tc.warns || existed != (tc.existing != nil) {
					t.Fatalf("%s: existed %t, %v, findings %v", tc.reason, existed, err, w.Findings.All())
				}
				if err != nil {
					return
				}
				live := api.Live(a)
				var uid types.UID
				for _, o := range live.GetOwnerReferences() {
					uid = o.UID
				}
				if uid != tc.want || !cmp.Equal(live.GetFinalizers(), []string{"f"}) {
					t.Errorf("%s: owner %q, finalizers %v", tc.reason, uid, live.GetFinalizers())
				}
			})
		})
	}
}

// TestFinalizersThatStand: nothing is written when the created object has its finalizers.
func TestFinalizersThatStand(t *testing.T) {
	api := enginetest.NewAPI(t)
	obj := thing("old")
	obj.SetFinalizers([]string{"f"})
	if _, _, err := actortest.New(api, &enginetest.Job{}).Writer.Recreate(t.Context(), a, obj, write.NoAttempt); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"create a"}, api.Writes()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestRestore: finalizers are those of what it has created. On a979837 it put them on what somebody
// else had created a moment before.
func TestRestore(t *testing.T) {
	for reason, existing := range map[string]bool{"nobody has created it": false, "somebody else has": true} {
		api := enginetest.NewAPI(t)
		var want []string
		if existing {
			api.Put(thing("old"))
		} else {
			want = []string{"f"}
		}
		obj := thing("old")
		obj.SetFinalizers([]string{"f"})
		if _, err := actortest.New(api, &enginetest.Job{}).Writer.Restore(t.Context(), a, obj); err != nil || !cmp.Equal(api.Live(a).GetFinalizers(), want) {
			t.Errorf("%s: finalizers %v, %v", reason, api.Live(a).GetFinalizers(), err)
		}
	}
}

// TestRecreateEnds: a run that ends meanwhile creates nothing without its owner.
func TestRecreateEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := enginetest.NewAPI(t)
		ctx, cancel := context.WithCancel(t.Context())
		api.Fail(enginetest.Fault{Verb: "get", Name: "default", Err: forbidden, Before: cancel})
		obj := thing("old")
		obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Broker", Name: "default", UID: "b"}})
		if _, _, err := actortest.New(api, &enginetest.Job{}).Writer.Recreate(ctx, a, obj, write.NoAttempt); err == nil || api.Live(a) != nil {
			t.Errorf("it is created: %v, %v", api.Live(a), err)
		}
	})
}

// TestRemoveFinalizers holds that only the given finalizers of the given object go.
func TestRemoveFinalizers(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		since  func(api *enginetest.API)
		left   []string
		writes int
		fails  bool
	}{
		"Removed": {reason: "the others stay", since: func(*enginetest.API) {}, left: []string{"g"}, writes: 1},
		"Gone":    {reason: "nothing is left to do", since: func(api *enginetest.API) { api.Remove(a) }},
		"None": {reason: "its owner has removed it", since: func(api *enginetest.API) {
			api.Edit(a, func(obj *unstructured.Unstructured) { obj.SetFinalizers([]string{"g"}) })
		}, left: []string{"g"}},
		"Other": {reason: "another object of its name keeps its own", since: func(api *enginetest.API) {
			api.Remove(a)
			other := thing("theirs")
			other.SetFinalizers([]string{"f"})
			api.Put(other)
		}, left: []string{"f"}},
		"Conflict": {reason: "somebody removes another one meanwhile: that does not come back", since: func(api *enginetest.API) {
			api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Before: func() { api.Edit(a, func(obj *unstructured.Unstructured) { obj.SetFinalizers([]string{"f", "h"}) }) }})
		}, left: []string{"h"}, writes: 2},
		"GoneMeanwhile": {reason: "it goes meanwhile", since: func(api *enginetest.API) {
			api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Before: func() { api.Remove(a) }})
		}, writes: 1},
		"Unread":  {reason: "an object that cannot be read", since: func(api *enginetest.API) { api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden}) }, left: []string{"f", "g"}, fails: true},
		"Refused": {reason: "a refusal", since: func(api *enginetest.API) { api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: forbidden}) }, left: []string{"f", "g"}, writes: 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				obj := thing("old")
				obj.SetFinalizers([]string{"f", "g"})
				api := enginetest.NewAPI(t)
				uid := api.Put(obj).GetUID()
				tc.since(api)
				err := actortest.New(api, &enginetest.Job{}).Writer.RemoveFinalizers(t.Context(), a, uid, []string{"f"})
				var left []string
				if live := api.Live(a); live != nil {
					left = live.GetFinalizers()
				}
				if (err != nil) != tc.fails || len(api.Writes()) != tc.writes || !cmp.Equal(tc.left, left) {
					t.Errorf("%s: left %v, %v, %v", tc.reason, left, err, api.Writes())
				}
			})
		})
	}
}

// TestPatchExactly holds that metadata is written to the given object only.
func TestPatchExactly(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		uid    types.UID
		fault  error
		want   string
		fails  bool
	}{
		"Ours":    {reason: "the object", want: "x"},
		"Other":   {reason: "another one is left alone", uid: "other"},
		"Gone":    {reason: "and one that is gone", fault: notFound},
		"Refused": {reason: "a refusal is an error", fault: forbidden, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			api := enginetest.NewAPI(t)
			uid := api.Put(thing("old")).GetUID()
			if tc.uid != "" {
				uid = tc.uid
			}
			if tc.fault != nil {
				api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: tc.fault})
			}
			err := actortest.New(api, &enginetest.Job{}).Writer.PatchExactly(t.Context(), a, uid, map[string]any{"annotations": map[string]any{"note": "x"}})
			if got := api.Live(a).GetAnnotations()["note"]; got != tc.want || (err != nil) != tc.fails {
				t.Errorf("%s: %q, %v", tc.reason, got, err)
			}
		})
	}
}

// TestDecision holds that no request is sent on an answer of the job that is too old.
func TestDecision(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// cost is how long the job read for its answer, age what passed since.
		cost, age time.Duration
		none      bool
		once      bool
		// busy is how long the server does not do it, answer what it says meanwhile: nil for 429.
		busy   time.Duration
		answer error
		// lease is how long the lock takes to be renewed.
		lease time.Duration
		old   bool
	}{
		"None":       {reason: "without a guard nothing gets old", none: true, busy: time.Minute / 2},
		"Fresh":      {reason: "an answer of two seconds ago", age: wait.FreshFor},
		"Old":        {reason: "and of more", age: wait.FreshFor + time.Millisecond, old: true},
		"BecomesOld": {reason: "while the server is busy", busy: 2 * wait.FreshFor, old: true},
		// On f3299ef this was sent: the age was looked at before the lock was there.
		"Lease":      {reason: "while the lock is renewed", lease: 2 * wait.FreshFor, old: true},
		"Slow":       {reason: "what reading took is added", cost: 3 * wait.FreshFor, age: wait.FreshFor},
		"SlowAndOld": {reason: "and no more", cost: 3 * wait.FreshFor, age: wait.FreshFor + time.Millisecond, old: true},
		"Dearest":    {reason: "up to ten seconds", cost: wait.MaxCost, age: wait.FreshFor},
		"TooDear":    {reason: "what took longer is never acted on", cost: wait.MaxCost + time.Millisecond, old: true},
		"Once":       {reason: "what the first request may have begun is finished", once: true, busy: 2 * wait.FreshFor, answer: apierrors.NewServiceUnavailable("no")},
		"OnceOld":    {reason: "but not begun", once: true, age: 2 * wait.FreshFor, old: true},
		// On f3299ef this was sent.
		"OnceRefused": {reason: "and one that was refused began nothing", once: true, busy: 2 * wait.FreshFor, old: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := actortest.New(enginetest.NewAPI(t), &enginetest.Job{})
				guard := w.Writer.Guard
				w.Writer.Guard = func(ctx context.Context) (context.Context, context.CancelFunc, error) {
					time.Sleep(tc.lease)
					return guard(ctx)
				}
				answer := wait.Answer{Read: time.Now()}
				time.Sleep(tc.cost)
				answer.Given = time.Now()
				ctx := t.Context()
				if !tc.none {
					ctx = write.WithDecision(ctx, &write.Decision{Answer: answer, Once: tc.once})
				}
				time.Sleep(tc.age)
				began := time.Now()
				err := w.Writer.Write(ctx, func(context.Context) error {
					switch {
					case time.Since(began) >= tc.busy:
						return nil
					case tc.answer != nil:
						return tc.answer
					}
					return busy
				})
				if errors.Is(err, write.ErrOldDecision) != tc.old || !tc.old && err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
			})
		})
	}
}

// TestCheckAge: the age of an answer is that at the moment when the request leaves. On f3299ef it
// left.
func TestCheckAge(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, method string
		age            time.Duration
		sent           bool
	}{
		"Fresh": {"it may be sent", http.MethodDelete, wait.FreshFor, true},
		"Old":   {"a token or a connection took too long", http.MethodDelete, wait.FreshFor + time.Millisecond, false},
		"Read":  {"a read acts on nothing", http.MethodGet, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := false
				transport := write.CheckAge(k8sutil.RoundTripper(func(*http.Request) (*http.Response, error) {
					sent = true
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				}))
				now := time.Now()
				ctx := write.WithDecision(t.Context(), &write.Decision{Answer: wait.Answer{Read: now, Given: now}})
				time.Sleep(tc.age)
				req, err := http.NewRequestWithContext(ctx, tc.method, "http://api.invalid/", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := transport.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
				if sent != tc.sent || errors.Is(err, write.ErrOldDecision) == tc.sent || k8sutil.IsTransient(err) {
					t.Errorf("%s: sent %t, %v", tc.reason, sent, err)
				}
			})
		})
	}
}

// TestWriteNeedsTheLock: nothing is sent without it.
func TestWriteNeedsTheLock(t *testing.T) {
	w := actortest.New(enginetest.NewAPI(t), &enginetest.Job{})
	w.Writer.Guard = func(context.Context) (context.Context, context.CancelFunc, error) {
		return nil, nil, k8sutil.Permanent(errors.New("it is lost"))
	}
	if err := w.Writer.Write(t.Context(), func(context.Context) error { t.Error("it is sent"); return nil }); err == nil {
		t.Error("no error")
	}
}

// TestWriteEndsWithTheLease: a call that ends with the Lease says nothing of the API server, and is
// no reason to give up. On 2b3be85 the write gave up when its last attempt had ended so.
func TestWriteEndsWithTheLease(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// short is how many calls have one second, of the three that the server takes.
		short  int
		failed bool
	}{
		"Renewed":  {reason: "the next call has the time of a renewed Lease", short: 2},
		"TooShort": {reason: "a Lease that is always too short is an end, too", short: 100, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := actortest.New(enginetest.NewAPI(t), &enginetest.Job{})
				calls := 0
				w.Writer.Guard = func(ctx context.Context) (context.Context, context.CancelFunc, error) {
					limit := 10 * time.Second
					if calls++; calls <= tc.short {
						limit = time.Second
					}
					call, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
					return call, cancel, nil
				}
				err := w.Writer.Write(t.Context(), func(call context.Context) error {
					if calls == 1 {
						return apierrors.NewTooManyRequests("later", int(k8sutil.RetryBudget/time.Second))
					}
					select {
					case <-call.Done():
						return call.Err()
					case <-time.After(3 * time.Second):
						return nil
					}
				})
				if (err != nil) != tc.failed || calls > 5 {
					t.Errorf("%s: %d calls: %v", tc.reason, calls, err)
				}
			})
		})
	}
}

// slowObject is an object that is read once an answer comes, after latency.
type slowObject struct {
	dynamic.ResourceInterface
	latency time.Duration
}

func (o slowObject) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	select {
	case <-time.After(o.latency):
		return enginetest.Make("Thing", name, "now"), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestLookOutlivesTheWrite: a read tells what a write did also if the Lease, and with it the
// context of the write, ended meanwhile. It has an end of its own.
func TestLookOutlivesTheWrite(t *testing.T) {
	for _, tc := range []struct {
		latency time.Duration
		err     error
	}{
		{latency: lease.CallTimeout - time.Second},
		{latency: lease.CallTimeout + time.Second, err: context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			began := time.Now()
			obj, err := write.Look(ctx, slowObject{latency: tc.latency}, "a")
			if !errors.Is(err, tc.err) || (err == nil) != (obj != nil) {
				t.Errorf("%s: %v, %v", tc.latency, obj, err)
			}
			if took := time.Since(began); took > lease.CallTimeout {
				t.Errorf("it took %s", took)
			}
		})
	}
}
