package readiness_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/readiness"
)

const (
	onNATS = operatorv1alpha1.NATS
	onMesh = operatorv1alpha1.EventMesh
)

func sub(name string) readiness.Subscription {
	return readiness.Subscription{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}, UID: types.UID("uid of " + name), Generation: 1}
}

func keys(all ...readiness.Subscription) (keys []types.NamespacedName) {
	for _, s := range all {
		keys = append(keys, s.NamespacedName)
	}
	return keys
}

func on(backends ...operatorv1alpha1.BackendType) map[operatorv1alpha1.BackendType]bool {
	ready := map[operatorv1alpha1.BackendType]bool{}
	for _, b := range backends {
		ready[b] = true
	}
	return ready
}

// TestComplete: it is said that all are ready when that was found of each of them, as it is, since
// what serves changed last.
func TestComplete(t *testing.T) {
	a, b := sub("a"), sub("b")
	for _, tc := range []struct {
		reason string
		// play is what happens after the round has begun with a and b.
		play func(tally *readiness.Tally, round int)
		// all are those that the cache has then.
		all  []readiness.Subscription
		want backend.Versions
	}{
		{
			"each is ready on one backend, and one on the other", func(tally *readiness.Tally, round int) {
				tally.Found(round, a, on(onNATS, onMesh))
				tally.Found(round, b, on(onMesh))
			},
			[]readiness.Subscription{a, b}, backend.Versions{onMesh: "9"},
		},
		{"nothing was found of one", func(tally *readiness.Tally, round int) { tally.Found(round, a, on(onMesh)) }, []readiness.Subscription{a, b}, backend.Versions{}},
		{"an earlier round", func(tally *readiness.Tally, round int) {
			tally.Found(round-1, a, on(onMesh))
			tally.Found(round, b, on(onMesh))
		}, []readiness.Subscription{a, b}, backend.Versions{}},
		{
			"one is not ready any more", func(tally *readiness.Tally, round int) {
				tally.Found(round, a, on(onMesh))
				tally.Found(round, b, on(onMesh))
				tally.Found(round, a, on())
			},
			[]readiness.Subscription{a, b}, backend.Versions{},
		},
		{
			"one has a new spec", func(tally *readiness.Tally, round int) {
				tally.Found(round, a, on(onMesh))
				tally.Found(round, b, on(onMesh))
			},
			[]readiness.Subscription{a, {NamespacedName: b.NamespacedName, UID: b.UID, Generation: 2}}, backend.Versions{},
		},
		{
			"one is another one of the same name", func(tally *readiness.Tally, round int) {
				tally.Found(round, a, on(onMesh))
				tally.Found(round, b, on(onMesh))
			},
			[]readiness.Subscription{a, {NamespacedName: b.NamespacedName, UID: "another", Generation: 1}}, backend.Versions{},
		},
		{
			"one came later", func(tally *readiness.Tally, round int) {
				tally.Found(round, a, on(onMesh))
				tally.Found(round, b, on(onMesh))
			},
			[]readiness.Subscription{a, b, sub("c")}, backend.Versions{},
		},
		{
			"one is invalid, and one is gone", func(tally *readiness.Tally, round int) {
				invalid := a
				invalid.Out = true
				tally.Found(round, invalid, on())
				tally.Forget(b.NamespacedName)
				tally.Found(round, sub("c"), on(onMesh))
			},
			[]readiness.Subscription{a, sub("c")}, backend.Versions{onMesh: "9"},
		},
		{
			"one is being deleted", func(tally *readiness.Tally, round int) { tally.Found(round, a, on(onMesh)) },
			[]readiness.Subscription{a, {NamespacedName: b.NamespacedName, UID: b.UID, Generation: 1, Out: true}}, backend.Versions{onMesh: "9"},
		},
	} {
		var tally readiness.Tally
		tally.Begin(backend.Set{onMesh, onNATS})
		round := tally.Begin(backend.Set{onMesh, onNATS})
		tally.Expect(round, keys(a, b))
		tc.play(&tally, round)
		if got := tally.Complete(round, tc.all, "9"); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}

// TestNews: somebody looks when there may be something to say, and not for each Subscription.
func TestNews(t *testing.T) {
	var tally readiness.Tally
	round := tally.Begin(backend.Set{onMesh, onNATS})
	a, b := sub("a"), sub("b")
	if tally.Found(round, a, on(onMesh)) {
		t.Error("there is news before all are known")
	}
	if tally.Expect(round, keys(a, b)) {
		t.Error("there is news, although one is not ready")
	}
	if !tally.Found(round, b, on(onMesh)) || !tally.Due() {
		t.Error("there is no news when all are ready on the mesh")
	}
	all := []readiness.Subscription{a, b}
	if tally.Said(round, tally.Complete(round, all, "9")) {
		t.Error("statuses are held for NATS, too")
	}
	if tally.Found(round, b, on(onMesh)) || tally.Due() {
		t.Error("what was said is news")
	}
	tally.Found(round, a, on(onMesh, onNATS))
	if !tally.Found(round, b, on(onMesh, onNATS)) || !tally.Said(round, tally.Complete(round, all, "9")) {
		t.Error("it is no news that all are ready on both")
	}
	if got := tally.Claims(); got.String() != "EventMesh=9,NATS=9" {
		t.Errorf("said was %s", got)
	}
	if round := tally.Begin(backend.Set{onMesh}); len(tally.Claims()) > 0 || tally.Said(round-1, backend.Versions{onMesh: "9"}) || len(tally.Claims()) > 0 {
		t.Error("what was said in a round holds for the next one")
	}
}

// TestHold: a status waits until all are ready, or until for 10 seconds no other one became ready.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tally readiness.Tally
		round := tally.Begin(backend.Set{onMesh})
		a := sub("a")
		b := sub("b")
		tally.Expect(round, keys(a, b))
		if got := tally.Hold(a.NamespacedName, time.Now()); got != 10*time.Second {
			t.Errorf("at first it waits %s", got)
		}
		time.Sleep(4 * time.Second)
		if got := tally.Hold(a.NamespacedName, time.Now()); got != 6*time.Second {
			t.Errorf("after 4 seconds it waits %s", got)
		}
		tally.Found(round, b, on(onMesh))
		time.Sleep(time.Second)
		tally.Found(round, b, on(onMesh)) // which is no news
		if got := tally.Hold(a.NamespacedName, time.Now()); got != 9*time.Second {
			t.Errorf("a second after one became ready it waits %s", got)
		}
		tally.Found(round, a, on(onMesh))
		tally.Said(round, tally.Complete(round, []readiness.Subscription{a, b}, "9"))
		for _, s := range []readiness.Subscription{a, b} {
			if got := tally.Hold(s.NamespacedName, time.Now()); got > 50*time.Millisecond {
				t.Errorf("after all were ready %s waits %s", s.Name, got)
			}
		}
		time.Sleep(50 * time.Millisecond)
		if first, second := tally.Hold(a.NamespacedName, time.Now()), tally.Hold(b.NamespacedName, time.Now()); first+second > 0 {
			t.Errorf("in the end they wait %s and %s", first, second)
		}
		tally.Begin(backend.Set{onNATS})
		time.Sleep(time.Minute)
		if got := tally.Hold(a.NamespacedName, time.Now()); got != 0 {
			t.Errorf("after a minute it waits %s", got)
		}
	})
}

// flaky is an API server that fails once.
type flaky struct {
	client.Reader
	failed bool
	all    []readiness.Subscription
}

func (f *flaky) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if !f.failed {
		f.failed = true
		return errors.New("not now")
	}
	list := into.(*metav1.PartialObjectMetadataList)
	list.ResourceVersion, list.Items = "9", nil
	for _, s := range f.all {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID, Generation: s.Generation}})
	}
	return nil
}

// TestTell: what could not be listed is listed at the next look, and one that does not exist any
// more keeps nobody waiting.
func TestTell(t *testing.T) {
	a, b := sub("a"), sub("b")
	server, news := &flaky{all: []readiness.Subscription{a, b}}, 0
	all := readiness.All{Live: server, News: func() { news++ }}
	round := all.Begin(backend.Set{onMesh})
	if got, err := all.Tell(t.Context(), round); err == nil || len(got) > 0 {
		t.Errorf("without an answer all are ready up to %s, %v", got, err)
	}
	all.Found(round, a, on(onMesh))
	if got, err := all.Tell(t.Context(), round); err != nil || len(got) > 0 || all.Due() {
		t.Errorf("before b is ready all are ready up to %s, %v", got, err)
	}
	server.all = []readiness.Subscription{a}
	all.Gone(b.NamespacedName)
	got, err := all.Tell(t.Context(), round)
	if err != nil || got[onMesh] != "9" || news != 1 {
		t.Errorf("when b is gone all are ready up to %s, %v; there was news %d times", got, err, news)
	}
	all.Said(round, got)
	if got, err := all.Tell(t.Context(), round); err != nil || got[onMesh] != "9" {
		t.Errorf("what was said is %s, %v", got, err)
	}
}
