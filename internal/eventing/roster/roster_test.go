package roster

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
)

const lease = 15 * time.Second

// world has the ConfigMap in memory, and says which version of Subscriptions each process has.
type world struct {
	t      *testing.T
	client *fake.FakeDynamicClient

	mu       sync.Mutex
	writes   int // the resource version of the ConfigMap
	slow     map[string]time.Duration
	away     map[string]bool   // from these, no write comes to the API server
	versions map[string]string // of each process
	known    []string          // Subscriptions of which the leader was told that they are known
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldWith(t, map[string]any{asksKey: "5"})
}

func worldWith(t *testing.T, data map[string]any) *world {
	t.Helper()
	config := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "roster", "namespace": "control", "uid": "present", "resourceVersion": "1"}, "data": data}}
	return &world{t: t, writes: 1, away: map[string]bool{}, slow: map[string]time.Duration{}, versions: map[string]string{}, client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{configMaps: "ConfigMapList"}, config)}
}

// process starts one that has a version of Subscriptions.
func (w *world) process(ctx context.Context, pod, version string) *Roster {
	w.reach(version, pod)
	client := gate{w.client, w, pod}
	r := New(Options{
		Client: client, Leader: client, Namespace: "control", Name: "roster", Pod: pod, Member: true, Lease: lease, Log: zap.NewNop(),
		Open: func(context.Context) (Subscriptions, error) { return has{w, pod}, nil },
		Known: func(s types.NamespacedName) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.known = append(w.known, s.Name)
		},
	})
	r.Use(true)
	go r.Run(ctx)
	return r
}

// reach lets processes have a version.
func (w *world) reach(version string, pods ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range pods {
		w.versions[pod] = version
	}
}

func (w *world) lose(pod string, away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away[pod] = away
}

// delay lets each write of a process come late to the API server.
func (w *world) delay(pod string, by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slow[pod] = by
}

// told returns of which Subscriptions the leader was told since the last call.
func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.known
	w.known = nil
	return known
}

// has are the Subscriptions of a process.
type has struct {
	w   *world
	pod string
}

func (h has) Version() string {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	return h.w.versions[h.pod]
}

func (h has) Newest() string { return h.Version() }

func (has) Match(string, string) []delivery.Recipient { return nil }

// gate is the API server for one process.
type gate struct {
	dynamic.Interface
	w   *world
	pod string
}

func (g gate) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return gatedResource{g.Interface.Resource(r), g}
}

type gatedResource struct {
	dynamic.NamespaceableResourceInterface
	gate
}

func (g gatedResource) Namespace(n string) dynamic.ResourceInterface {
	return gatedWrites{g.NamespaceableResourceInterface.Namespace(n), g.gate}
}

type gatedWrites struct {
	dynamic.ResourceInterface
	gate
}

func (g gatedWrites) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*unstructured.Unstructured, error) {
	g.w.mu.Lock()
	delay := g.w.slow[g.pod]
	g.w.mu.Unlock()
	time.Sleep(delay)
	g.w.mu.Lock() // a patch is one step of the API server, and two of the fake one
	defer g.w.mu.Unlock()
	if g.w.away[g.pod] {
		return nil, errors.New("the API server does not answer")
	}
	g.w.writes++
	data, err := versioned(kind, data, strconv.Itoa(g.w.writes))
	if err != nil {
		return nil, err
	}
	return g.ResourceInterface.Patch(ctx, name, kind, data, o, sub...)
}

// versioned is a patch that gives its object a resource version, too, which the fake API server
// does not: without it, the answer to a write that comes later than the watch of the next one wins.
func versioned(kind types.PatchType, data []byte, version string) ([]byte, error) {
	if kind == types.JSONPatchType {
		var ops []map[string]any
		if err := json.Unmarshal(data, &ops); err != nil {
			return nil, err
		}
		return json.Marshal(append(ops, map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": version}))
	}
	var merge map[string]any
	if err := json.Unmarshal(data, &merge); err != nil {
		return nil, err
	}
	merge["metadata"] = map[string]any{"resourceVersion": version}
	return json.Marshal(merge)
}

// Watch gives each process objects of its own, as the real API server does.
func (g gatedWrites) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := g.ResourceInterface.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	own := watch.NewProxyWatcher(make(chan watch.Event))
	events := make(chan watch.Event)
	go func() {
		defer close(events)
		for e := range w.ResultChan() {
			e.Object = e.Object.DeepCopyObject()
			select {
			case events <- e:
			case <-own.StopChan():
			}
		}
	}()
	go func() {
		<-own.StopChan()
		w.Stop()
	}()
	return ownEvents{own, events}, nil
}

type ownEvents struct {
	*watch.ProxyWatcher
	events chan watch.Event
}

func (o ownEvents) ResultChan() <-chan watch.Event { return o.events }

// TestKnown: what counts is a state in which the version is asked for and all that have written a
// moment ago know it.
func TestKnown(t *testing.T) {
	now := time.Now()
	of := func(knows string, age time.Duration) seen { return seen{knows: knows, since: now.Add(-age)} }
	// What the leader has not read itself since then says nothing of who is gone.
	r := New(Options{Lease: lease})
	r.data, r.seen, r.fresh = map[string]string{asksKey: "7"}, map[string]seen{"b": of("6", time.Hour)}, now.Add(-time.Hour+lease)
	if known, _ := r.known("7"); known {
		t.Error("one is left out that the leader has not looked at for an hour")
	}
	for _, tc := range []struct {
		reason  string
		asks    string
		members map[string]seen
		version string
		known   bool
		missing string
	}{
		{reason: "nobody has asked", members: map[string]seen{"a": of("9", 0)}, version: "7"},
		{reason: "an earlier version was asked for", asks: "6", members: map[string]seen{"a": of("9", 0)}, version: "7"},
		{reason: "all know it", asks: "7", members: map[string]seen{"a": of("9", 0), "b": of("7", time.Second)}, version: "7", known: true},
		{reason: "a longer number is a later version", asks: "10", members: map[string]seen{"a": of("10", 0)}, version: "9", known: true},
		{reason: "one does not know it", asks: "10", members: map[string]seen{"a": of("10", 0), "b": of("9", 0), "c": of("", 0)}, version: "10", missing: "b c"},
		{reason: "one that does not know it writes no more", asks: "10", members: map[string]seen{"a": of("10", 0), "b": of("9", 37*time.Second)}, version: "10", missing: "b"},
		{reason: "one that does not know it is gone", asks: "10", members: map[string]seen{"a": of("10", 0), "b": of("9", 38*time.Second)}, version: "10", known: true},
		{reason: "nobody serves", asks: "10", version: "10", known: true},
		{reason: "what is no version is not known", asks: "10", members: map[string]seen{"a": of("x", 0)}, version: "10", missing: "a"},
	} {
		r := New(Options{Lease: lease})
		r.data, r.seen, r.fresh = map[string]string{asksKey: tc.asks}, tc.members, now
		if known, missing := r.known(tc.version); known != tc.known || strings.Join(missing, " ") != tc.missing {
			t.Errorf("%s: %t, %q are missing", tc.reason, known, missing)
		}
	}
}

// TestRestored: a copy of the ConfigMap from another cluster asks for a version that this one will
// not reach for long.
func TestRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := worldWith(t, map[string]any{asksKey: question("9000", "former"), "gone": `{"run":"r","knows":"9000"}`})
		leader, other := w.process(ctx, "a", "9"), w.process(ctx, "b", "9")
		time.Sleep(lease)
		for _, r := range []*Roster{leader, other} {
			if _, err := r.Match("shop", "a.b"); err != nil {
				t.Errorf("%s: %v", r.options.Pod, err)
			}
		}
		w.reach("12", "a")
		asked := types.NamespacedName{Namespace: "shop", Name: "orders"}
		if known, missing := leader.Ask(ctx, asked, "12"); known || strings.Join(missing, " ") != "b" {
			t.Errorf("a version that one has: %t, %q are missing", known, missing)
		}
		w.reach("12", "b")
		time.Sleep(lease)
		if known, missing := leader.Ask(ctx, asked, "12"); !known {
			t.Errorf("a version that all have: %q are missing", missing)
		}
		cancel()
		synctest.Wait()
	})
}

// TestRoster: who serves, and what is known, while processes come, lose the API server, and go.
func TestRoster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		serves := func(r *Roster, want bool, when string) {
			t.Helper()
			synctest.Wait()
			if _, err := r.Match("shop", "a.b"); (err == nil) != want {
				t.Fatalf("%s: serves: %t, %v", when, err == nil, err)
			}
		}
		asked := types.NamespacedName{Namespace: "shop", Name: "orders"}
		const soon = 2 * time.Second // more than any wait that is no patience
		leader := w.process(ctx, "a", "9")
		time.Sleep(soon)
		serves(leader, true, "it knows what was asked for")
		if err := leader.Ready(); err != nil {
			t.Error(err)
		}
		if known, missing := leader.Ask(ctx, asked, "9"); !known {
			t.Fatalf("alone: %q are missing", missing)
		}
		w.told() // it may have been told, too
		other, leave := context.WithCancel(ctx)
		second := w.process(other, "b", "9")
		time.Sleep(soon)
		serves(second, true, "the second one")

		// Nobody has version 12 yet, and one begins that does not have it either.
		if known, missing := leader.Ask(ctx, asked, "12"); known || strings.Join(missing, " ") != "a b" {
			t.Fatalf("a version that nobody has: %t, %q", known, missing)
		}
		third := w.process(ctx, "c", "11")
		time.Sleep(soon)
		serves(third, false, "one that begins and does not know what is asked for")
		if third.Ready() == nil {
			t.Error("it is ready")
		}
		w.reach("12", "a", "b")
		time.Sleep(soon)
		if got := w.told(); len(got) > 0 {
			t.Fatalf("%q are known, and one does not know them that will serve", got)
		}
		w.reach("12", "c")
		time.Sleep(soon)
		serves(third, true, "it knows what is asked for")
		if got := w.told(); len(got) != 1 || got[0] != "orders" {
			t.Fatalf("known are %q", got)
		}

		// The second one loses the API server. It serves for as long as the leader waits for it.
		w.lose("b", true)
		lost := time.Now()
		w.reach("15", "a", "c")
		if known, missing := leader.Ask(ctx, asked, "15"); known || strings.Join(missing, " ") != "b" {
			t.Fatalf("one does not know it: %t, %q", known, missing)
		}
		for len(w.told()) == 0 {
			time.Sleep(100 * time.Millisecond)
			if time.Since(lost) > time.Minute {
				t.Fatal("one that is gone is waited for")
			}
		}
		serves(second, false, "one that has lost the API server")
		if took := time.Since(lost); took < 2*lease {
			t.Errorf("it was waited for only for %s", took)
		}
		// The API server is back, and the process knows only later what was asked for meanwhile.
		w.lose("b", false)
		time.Sleep(lease)
		serves(second, false, "one that does not know what was asked for meanwhile")
		w.reach("15", "b")
		time.Sleep(soon)
		serves(second, true, "it knows what was asked for")

		// A shorter loss changes nothing.
		w.lose("b", true)
		time.Sleep(lease)
		serves(second, true, "one that has lost the API server for a moment")
		w.lose("b", false)
		time.Sleep(soon)
		serves(second, true, "and has it again")

		// It loses the API server for almost as long as it serves, and its next write takes so long
		// that the leader has gone on without it.
		second.mu.Lock()
		until := second.until
		second.mu.Unlock()
		w.lose("b", true)
		w.reach("17", "a", "c")
		leader.Ask(ctx, asked, "17")
		time.Sleep(time.Until(until.Add(-1200 * time.Millisecond)))
		w.delay("b", requestLimit-100*time.Millisecond)
		w.lose("b", false)
		serves(second, true, "one that is writing")
		time.Sleep(9800 * time.Millisecond)
		if got := w.told(); len(got) != 1 {
			t.Fatalf("known are %q", got)
		}
		for range 100 {
			serves(second, false, "one that the leader has gone on without")
			time.Sleep(100 * time.Millisecond)
		}
		w.delay("b", 0)
		w.reach("17", "b")
		time.Sleep(lease)
		serves(second, true, "it knows what was asked for")

		// One that ends is waited for no more.
		leave()
		time.Sleep(soon)
		serves(second, false, "one that ended")
		w.reach("20", "a", "c")
		if known, missing := leader.Ask(ctx, asked, "20"); !known {
			t.Errorf("%q are missing", missing)
		}
		cancel()
		time.Sleep(time.Minute)
	})
}
