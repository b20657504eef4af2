package k8sutil

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

var things = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}

func once(ctx context.Context, op func(context.Context) error) error { return op(ctx) }

func TestIsTransient(t *testing.T) {
	thing := things.GroupResource()
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Nil":       {"no error", nil, false},
		"Conflict":  {"decided on the merits", apierrors.NewConflict(thing, "a", errors.New("x")), false},
		"Forbidden": {"decided on the merits", apierrors.NewForbidden(thing, "a", errors.New("x")), false},
		"NotFound":  {"decided on the merits", apierrors.NewNotFound(thing, "a"), false},
		"TooMany":   {"the server asks to come back", apierrors.NewTooManyRequests("x", 1), true},
		"Internal":  {"a webhook or etcd may be back soon", apierrors.NewInternalError(errors.New("x")), true},
		"Timeout":   {"the outcome is unknown", apierrors.NewTimeoutError("x", 1), true},
		"EOF":       {"the connection broke", io.ErrUnexpectedEOF, true},
		"Deadline":  {"one call took too long", context.DeadlineExceeded, true},
		"Canceled":  {"we ended it ourselves", context.Canceled, false},
		"Permanent": {"the caller says so", fmt.Errorf("wrapped: %w", Permanent(io.EOF)), false},
		"ReadOnly":  {"refused before it left", &ReadOnlyError{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsTransient(tc.err); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

func TestRetry(t *testing.T) {
	t.Run("RepeatsWhatIsTransient", func(t *testing.T) {
		calls := 0
		err := Retry(t.Context(), time.Minute, nil, func(context.Context) error {
			if calls++; calls < 3 {
				return io.EOF
			}
			return nil
		})
		if err != nil || calls != 3 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
	t.Run("ReturnsWhatIsNot", func(t *testing.T) {
		calls := 0
		want := apierrors.NewNotFound(things.GroupResource(), "a")
		err := Retry(t.Context(), time.Minute, nil, func(context.Context) error { calls++; return want })
		if !errors.Is(err, want) || calls != 1 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
	t.Run("EndsWithItsBudget", func(t *testing.T) {
		err := Retry(t.Context(), 200*time.Millisecond, nil, func(context.Context) error { return io.EOF })
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
	t.Run("EndsWithItsContext", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the run ends")
		cancel(cause)
		if err := Retry(ctx, time.Minute, nil, func(context.Context) error { return nil }); !errors.Is(err, cause) {
			t.Error(err)
		}
	})
	t.Run("EndsWithItsContextDuringAnAttempt", func(t *testing.T) {
		// Not that the API server failed for longer than is retried.
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the run ends")
		err := Retry(ctx, time.Minute, nil, func(context.Context) error { cancel(cause); return io.EOF })
		if !errors.Is(err, cause) || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "EOF") {
			t.Errorf("got %v, want the cause, and the last answer for people to read", err)
		}
	})
	t.Run("EndsWithItsContextDuringALaterAttempt", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause, answers := errors.New("the run ends"), []error{io.EOF}
		err := Retry(ctx, time.Minute, nil, func(context.Context) error {
			if len(answers) == 0 {
				cancel(cause)
				return fmt.Errorf("Post: %w", cause)
			}
			answers = nil
			return io.EOF
		})
		if !errors.Is(err, cause) || !strings.HasSuffix(err.Error(), "(the last answer: EOF)") {
			t.Errorf("got %v, want the cause, and the answer to the first attempt", err)
		}
	})
	t.Run("EndsWithItsContextBetweenAttempts", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the run ends")
		err := Retry(ctx, time.Minute, func(error) { cancel(cause) }, func(context.Context) error { return io.EOF })
		if !errors.Is(err, cause) || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "EOF") {
			t.Errorf("got %v, want the cause, and the last answer for people to read", err)
		}
	})
}

// server answers lists of things in pages of two, and whatever handle answers
// first.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	handle   func(w http.ResponseWriter, r *http.Request) bool
}

func newServer(t *testing.T, total int) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
		handle := s.handle
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if handle != nil && handle(w, r) {
			return
		}
		var from int
		_, _ = fmt.Sscanf(r.URL.Query().Get("continue"), "%d", &from)
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "ThingList"}}
		list.SetResourceVersion("7")
		for i := from; i < min(from+2, total); i++ {
			list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Thing",
				"metadata": map[string]any{"name": fmt.Sprintf("t%d", i), "namespace": "ns", "managedFields": []any{}},
			}})
		}
		if from+2 < total {
			list.SetContinue(fmt.Sprint(from + 2))
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(s.Close)
	return s
}

func answer(w http.ResponseWriter, err *apierrors.StatusError) bool {
	err.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.WriteHeader(int(err.ErrStatus.Code))
	_ = json.NewEncoder(w).Encode(err.ErrStatus)
	return true
}

func (s *server) things(t *testing.T) Source {
	t.Helper()
	cfg := &rest.Config{Host: s.URL, QPS: -1}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	lister, err := NewLister(cfg, client)
	if err != nil {
		t.Fatal(err)
	}
	return lister.Source(things, "ns")
}

func TestListerListsAsTheDynamicClientDoes(t *testing.T) {
	s := newServer(t, 2)
	cfg := &rest.Config{Host: s.URL, QPS: -1}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	opts := metav1.ListOptions{Limit: 2, LabelSelector: "a=b"}
	want, err := client.Resource(things).Namespace("ns").List(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.things(t).List(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want.Items {
		Trim(&want.Items[i])
	}
	if diff := cmp.Diff(want.Items, got.Items); diff != "" || got.GetResourceVersion() != want.GetResourceVersion() {
		t.Errorf("-dynamic +lister:\n%s", diff)
	}
	if s.requests[0] != s.requests[1] {
		t.Errorf("requests differ: %q", s.requests)
	}
	s.handle = func(w http.ResponseWriter, _ *http.Request) bool {
		return answer(w, apierrors.NewForbidden(things.GroupResource(), "", errors.New("no")))
	}
	if _, err := s.things(t).List(t.Context(), opts); !apierrors.IsForbidden(err) {
		t.Errorf("a refusal must be told as such: %v", err)
	}
}

func TestPageBeginsAgainWhenTheTokenExpires(t *testing.T) {
	s := newServer(t, 5)
	expired := false
	s.handle = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") == "4" && !expired {
			expired = true
			return answer(w, apierrors.NewResourceExpired("too old"))
		}
		return false
	}
	var names []string
	version, err := Page(t.Context(), s.things(t), metav1.ListOptions{Limit: 2}, once,
		func() { names = nil }, func(obj *unstructured.Unstructured) error { names = append(names, obj.GetName()); return nil })
	if err != nil || version != "7" {
		t.Fatalf("version %q, %v", version, err)
	}
	if want := []string{"t0", "t1", "t2", "t3", "t4"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	for _, request := range s.requests {
		if !strings.Contains(request, "limit=2") {
			t.Errorf("an unpaged request: %s", request)
		}
	}
}

// TestPageIsBoundedInBytes: 500 objects of 262,144 bytes of annotations, which the API accepts, are
// 125 MiB. And one object that is larger than a page may be is read all the same.
func TestPageIsBoundedInBytes(t *testing.T) {
	const total, big = 100, 262144
	var sizes []int
	s := newServer(t, 0)
	s.handle = func(w http.ResponseWriter, r *http.Request) bool {
		var from, limit int
		_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &from)
		_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "ThingList"}}
		size := 0
		for i := from; i < min(from+limit, total); i++ {
			note := big
			if i == 70 {
				note = PageBytes + 1
			}
			size += note
			list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Thing",
				"metadata": map[string]any{"name": fmt.Sprint(i), "namespace": "ns", "annotations": map[string]any{"a": strings.Repeat("x", note)}},
			}})
		}
		if from+limit < total {
			list.SetContinue(fmt.Sprint(from + limit))
		}
		sizes = append(sizes, size)
		_ = json.NewEncoder(w).Encode(list)
		return true
	}
	var names, want []string
	for i := range total {
		want = append(want, fmt.Sprint(i))
	}
	_, err := Page(t.Context(), s.things(t), metav1.ListOptions{}, once,
		func() { names = nil }, func(obj *unstructured.Unstructured) error { names = append(names, obj.GetName()); return nil })
	if err != nil || !slices.Equal(names, want) {
		t.Fatalf("got %q, %v", names, err)
	}
	cut := 0
	for _, size := range sizes {
		if size > PageBytes {
			cut++
		}
	}
	// The first page, the one with the largest object, and that object alone.
	if cut != 3 {
		t.Errorf("%d pages were larger than %d bytes: %d", cut, PageBytes, sizes)
	}
}

func TestReadOnlyAndCounter(t *testing.T) {
	s := newServer(t, 0)
	var counter Counter
	cfg := &rest.Config{Host: s.URL, QPS: -1}
	cfg.Wrap(counter.Wrap)
	cfg.Wrap(ReadOnly)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	resource := client.Resource(things).Namespace("ns")
	if _, err := resource.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	var refused *ReadOnlyError
	if err := resource.Delete(t.Context(), "t0", metav1.DeleteOptions{}); !errors.As(err, &refused) {
		t.Errorf("a write must be refused, got %v", err)
	}
	if len(s.requests) != 1 || counter.Reads() != 1 || counter.Writes() != 0 {
		t.Errorf("requests %q, %d reads, %d writes", s.requests, counter.Reads(), counter.Writes())
	}
}

func TestServed(t *testing.T) {
	// A server without aggregated discovery, as Kubernetes 1.16 is.
	s := newServer(t, 0)
	broken := false
	s.handle = func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/api":
			_ = json.NewEncoder(w).Encode(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		case "/apis":
			_ = json.NewEncoder(w).Encode(metav1.APIGroupList{
				TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
				Groups: []metav1.APIGroup{{Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{
					{GroupVersion: "example.com/v1alpha1", Version: "v1alpha1"}, {GroupVersion: "example.com/v1", Version: "v1"},
				}}},
			})
		case "/apis/example.com/v1":
			if broken {
				return answer(w, apierrors.NewForbidden(things.GroupResource(), "", errors.New("no")))
			}
			_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
				TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "example.com/v1",
				APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing", Namespaced: true}, {Name: "things/status", Kind: "Thing"}},
			})
		case "/apis/example.com/v1alpha1":
			_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
				TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "example.com/v1alpha1",
				APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing"}, {Name: "olds", Kind: "Old"}},
			})
		default:
			return false
		}
		return true
	}
	find := func(kind string) (schema.GroupVersionResource, bool, error) {
		t.Helper()
		client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: s.URL, QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		return NewServed(client, once).Find(t.Context(), schema.GroupKind{Group: "example.com", Kind: kind})
	}
	if got, ok, err := find("Thing"); err != nil || !ok || got.Version != "v1" {
		t.Errorf("the best version serves it: %v %t %v", got, ok, err)
	}
	if got, ok, err := find("Old"); err != nil || !ok || got.Version != "v1alpha1" {
		t.Errorf("only the old version serves it: %v %t %v", got, ok, err)
	}
	if _, ok, err := find("None"); err != nil || ok {
		t.Errorf("no version serves it: %t %v", ok, err)
	}
	broken = true
	if _, ok, err := find("None"); err == nil || ok {
		t.Errorf("discovery that failed is an error, never absent: %t %v", ok, err)
	}
}

// TestServedAgain: discovery of a group that failed is not remembered. Where the server answers for
// all groups at once, it says so beside those that it knows.
func TestServedAgain(t *testing.T) {
	s := newServer(t, 0)
	freshness := "Stale"
	s.handle = func(w http.ResponseWriter, r *http.Request) bool {
		groups := ""
		if r.URL.Path == "/apis" {
			groups = `{"metadata":{"name":"example.com"},"versions":[{"version":"v1","freshness":"` + freshness + `","resources":[{"resource":"things","responseKind":{"group":"example.com","version":"v1","kind":"Thing"},"scope":"Namespaced","verbs":["get"]}]}]}`
		}
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		fmt.Fprintf(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[%s]}`, groups)
		return true
	}
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: s.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	served, gk := NewServed(client, once), schema.GroupKind{Group: "example.com", Kind: "Thing"}
	if _, ok, err := served.Find(t.Context(), gk); err == nil || ok {
		t.Errorf("what the server knows of the group is stale: %t %v", ok, err)
	}
	freshness = "Current"
	if got, ok, err := served.Find(t.Context(), gk); err != nil || !ok || got.Resource != "things" {
		t.Errorf("it knows it now: %v %t %v", got, ok, err)
	}
}

// TestCollectionListsAgain: when the server does not know the version of the list any
// more, the collection is listed again, and what differs is told.
func TestCollectionListsAgain(t *testing.T) {
	for name, packed := range map[string]bool{"AsTheyAre": false, "Packed": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, 3)
			var expired atomic.Bool
			s.handle = func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.URL.Query().Get("watch") == "" && !expired.Load():
					return false
				case r.URL.Query().Get("watch") == "":
					fmt.Fprint(w, `{"apiVersion":"example.com/v1","kind":"ThingList","metadata":{"resourceVersion":"20"},"items":[
						{"metadata":{"name":"t0","namespace":"ns"}},
						{"metadata":{"name":"t1","namespace":"ns","resourceVersion":"19"}},
						{"metadata":{"name":"t3","namespace":"ns","resourceVersion":"18"}}]}`)
					return true
				case !expired.Swap(true):
					return answer(w, apierrors.NewResourceExpired("too old"))
				}
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return true
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := NewCollection(s.things(t), metav1.ListOptions{}, nil, once)
			if packed {
				c.Pack()
			}
			if err := c.List(ctx); err != nil {
				t.Fatal(err)
			}
			changed := make(chan string, 10)
			c.Watch(ctx, func(key string) { changed <- key })
			got := map[string]bool{}
			for range 3 {
				got[<-changed] = true
			}
			if !got["ns/t1"] || !got["ns/t2"] || !got["ns/t3"] {
				t.Errorf("changed: %v", got)
			}
			if c.Get("ns", "t2") != nil || c.Get("ns", "t3") == nil || c.Get("ns", "t1").GetResourceVersion() != "19" {
				t.Errorf("the collection does not have what was listed: %v", c.All())
			}
		})
	}
}

func TestCollectionListsOnceAndWatchesOn(t *testing.T) {
	for name, packed := range map[string]bool{"AsTheyAre": false, "Packed": true} {
		t.Run(name, func(t *testing.T) { listsOnceAndWatchesOn(t, packed) })
	}
}

func listsOnceAndWatchesOn(t *testing.T, packed bool) {
	s := newServer(t, 3)
	watches := make(chan string, 10)
	s.handle = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") == "" {
			return false
		}
		watches <- r.URL.Query().Get("resourceVersion")
		fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"new","namespace":"ns","resourceVersion":"8"}}}`+"\n")
		fmt.Fprintf(w, `{"type":"DELETED","object":{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t0","namespace":"ns","resourceVersion":"9"}}}`+"\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := NewCollection(s.things(t), metav1.ListOptions{Limit: 2}, func(obj *unstructured.Unstructured) { obj.SetLabels(nil) }, once)
	if packed {
		c.Pack()
	}
	if err := c.List(ctx); err != nil {
		t.Fatal(err)
	}
	if first, second := c.Get("ns", "t1"), c.Get("ns", "t1"); (first == second) == packed || !reflect.DeepEqual(first, second) || first.GetLabels() != nil {
		t.Errorf("%v and then %v", first, second)
	}
	var keys []string
	c.Each(func(obj *unstructured.Unstructured) { keys = append(keys, Key(obj)) })
	if !slices.Equal(keys, []string{"ns/t0", "ns/t1", "ns/t2"}) {
		t.Errorf("each: %q", keys)
	}
	if len(c.All()) != 3 || c.Get("ns", "t2") == nil {
		t.Fatalf("listed %d", len(c.All()))
	}
	changed := make(chan string, 10)
	c.Watch(ctx, func(key string) { changed <- key })
	if got := []string{<-changed, <-changed}; !slices.Equal(got, []string{"ns/new", "ns/t0"}) {
		t.Errorf("changed: %q", got)
	}
	if c.Get("ns", "new") == nil || c.Get("ns", "t0") != nil || len(c.All()) != 3 {
		t.Error("the collection does not follow the watch")
	}
	if from := <-watches; from != "7" {
		t.Errorf("the watch begins at %q, want the list's version 7", from)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lists := 0
	for _, request := range s.requests {
		if !strings.Contains(request, "watch=") {
			lists++
		}
	}
	if lists != 2 {
		t.Errorf("listed in %d requests, want 2 pages: %q", lists, s.requests)
	}
}
