package mesh

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// TestNothingHangs: a Trigger that somebody deletes does not keep its namespace, or its kind, from
// being deleted.
func TestNothingHangs(t *testing.T) {
	t.Parallel()
	names := backend.Names(backend.DefaultPrefix)
	terminating := apierrors.NewForbidden(triggers.GroupResource(), names.Controller(), nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for reason, tc := range map[string]struct {
		refused error
		free    bool
	}{
		"the namespace is being deleted": {terminating, true},
		"the kind is being deleted":      {apierrors.NewMethodNotSupported(triggers.GroupResource(), "create"), true},
		"no permission":                  {apierrors.NewForbidden(triggers.GroupResource(), names.Controller(), nil), false},
		"a failure":                      {apierrors.NewServiceUnavailable("tested"), false},
	} {
		client := fakeClient()
		client.PrependReactor("create", triggers.Resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.refused })
		in := testTrigger(client, names)
		b := Broker{Name: names.Broker(), UID: "present"}
		u := in.wanted(b, names.Triggers()[0])
		u.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
		if err := client.Tracker().Create(triggers, u, "control"); err != nil {
			t.Fatal(err)
		}
		if err := in.Follow(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if err := in.Ensure(t.Context(), b); err == nil {
			t.Errorf("%s: the Trigger leads to the controller", reason)
		}
		in.Leave()
		u, err := in.triggers.Get(t.Context(), u.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if held(u) == tc.free {
			t.Errorf("%s: it is held: %v", reason, held(u))
		}
	}
}

// TestMakesRoom: of two Triggers that somebody has deleted, the one through which events may be the
// only ones to come stays.
func TestMakesRoom(t *testing.T) {
	t.Parallel()
	names := backend.Names(backend.DefaultPrefix)
	b := Broker{Name: names.Broker(), UID: "present"}
	type is struct{ held, reached bool }
	for reason, tc := range map[string]struct {
		first, second is
		held          [2]bool // afterwards
	}{
		"the second one has been replaced":         {is{true, true}, is{false, true}, [2]bool{true, false}},
		"the first one has been replaced":          {is{false, true}, is{true, true}, [2]bool{false, true}},
		"nothing has come through the second one":  {is{true, true}, is{true, false}, [2]bool{true, false}},
		"nothing has come through the first one":   {is{true, false}, is{true, true}, [2]bool{false, true}},
		"events come through both":                 {is{true, true}, is{true, true}, [2]bool{false, true}},
		"nothing has come through any one of them": {is{true, false}, is{true, false}, [2]bool{true, false}},
	} {
		client := fakeClient()
		in := testTrigger(client, names)
		for i, is := range []is{tc.first, tc.second} {
			u := in.wanted(b, names.Triggers()[i])
			u.SetUID(types.UID(u.GetName()))
			u.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
			if !is.held {
				u.SetFinalizers([]string{metav1.FinalizerDeleteDependents})
			}
			if is.reached {
				annotations := u.GetAnnotations()
				annotations[reachedAnnotation] = string(u.GetUID())
				u.SetAnnotations(annotations)
			}
			if err := client.Tracker().Create(triggers, u, "control"); err != nil {
				t.Fatal(err)
			}
		}
		// The API server keeps what has a finalizer.
		client.PrependReactor("delete", triggers.Resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		if err := in.Follow(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if err := in.Ensure(t.Context(), b); err == nil {
			t.Errorf("%s: a Trigger leads to the controller", reason)
		}
		in.Leave()
		for i, want := range tc.held {
			u, err := in.triggers.Get(t.Context(), names.Triggers()[i], metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if held(u) != want {
				t.Errorf("%s: %s is held: %v", reason, u.GetName(), !want)
			}
		}
	}
}

// fakeClient returns a client whose watches tell nothing: the fake would share an object between a
// watch and the answer to a write.
func fakeClient(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		triggers: "TriggerList", brokers: "BrokerList", channels: "InMemoryChannelList",
	}, objects...)
	client.PrependWatchReactor("*", clienttesting.DefaultWatchReactor(watch.NewFake(), nil))
	return client
}

func testTrigger(client dynamic.Interface, names backend.Names) *Trigger {
	return New(Options{Client: client, Probed: client, Namespace: "control", Names: names, Version: "1", Lease: 15 * time.Second, Log: zap.NewNop(), Changed: func() {}})
}

// TestProbesWait: as long as nothing is asked for, nothing is done.
func TestProbesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fakeClient()
		in := testTrigger(client, backend.Names(backend.DefaultPrefix))
		if err := in.Follow(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // it would not end while the probes turn without a pause
		in.Leave()
		synctest.Wait()
	})
}
