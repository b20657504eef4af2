package faultproxy

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// broken says that the connection went away under the request.
func broken(err error) bool {
	var status apierrors.APIStatus
	return err != nil && !errors.As(err, &status)
}

func TestRequestFaults(t *testing.T) {
	ctx := t.Context()
	create := func(c dynamic.ResourceInterface) error {
		_, err := c.Create(ctx, configMap("x"), metav1.CreateOptions{})
		return err
	}
	remove := func(c dynamic.ResourceInterface) error { return c.Delete(ctx, "x", metav1.DeleteOptions{}) }
	list := func(c dynamic.ResourceInterface) error {
		_, err := c.List(ctx, metav1.ListOptions{})
		return err
	}
	more := func(c dynamic.ResourceInterface) error {
		_, err := c.List(ctx, metav1.ListOptions{Continue: "token"})
		return err
	}
	open := func(c dynamic.ResourceInterface) error {
		w, err := c.Watch(ctx, metav1.ListOptions{})
		if err == nil {
			w.Stop()
		}
		return err
	}
	never := func(err error) bool { return err == nil }

	cases := map[string]struct {
		reason string
		kind   Kind
		do     func(dynamic.ResourceInterface) error
		want   func(error) bool
		// placed says whether the request takes place at the API server.
		placed bool
	}{
		"ConflictCreate":      {"A create can meet a conflict.", Conflict, create, apierrors.IsConflict, false},
		"ConflictDelete":      {"A delete can meet a conflict.", Conflict, remove, apierrors.IsConflict, false},
		"ConflictList":        {"A read never meets one.", Conflict, list, never, true},
		"AlreadyExistsCreate": {"A create can be told that the object exists.", AlreadyExists, create, apierrors.IsAlreadyExists, false},
		"AlreadyExistsDelete": {"Nothing else can be told so.", AlreadyExists, remove, never, true},
		"TooManyRequests":     {"A write can be throttled.", TooManyRequests, create, apierrors.IsTooManyRequests, false},
		"InternalError":       {"A write can fail in the API server.", InternalError, create, apierrors.IsInternalError, false},
		"Unavailable":         {"The API server can be away.", Unavailable, create, apierrors.IsServiceUnavailable, false},
		"UnavailableRetry":    {"The API server can be shutting down.", UnavailableRetryAfter, list, apierrors.IsServiceUnavailable, false},
		"TimeoutCreate":       {"A write can take place although it timed out.", Timeout, create, apierrors.IsTimeout, true},
		"TimeoutList":         {"A read can time out.", Timeout, list, apierrors.IsTimeout, true},
		"ResetBefore":         {"A reset can come before the write.", ResetBefore, create, broken, false},
		"ResetAfter":          {"A reset can come after the write.", ResetAfter, create, broken, true},
		"WatchRefused":        {"A watch can start too late.", WatchRefused, open, func(err error) bool { return apierrors.IsGone(err) || apierrors.IsResourceExpired(err) }, false},
		"WatchRefusedList":    {"A list cannot.", WatchRefused, list, never, true},
		"ContinueExpired":     {"A list can be too slow for its token.", ContinueExpired, more, apierrors.IsResourceExpired, false},
		"ContinueFirstPage":   {"A first page has no token to expire.", ContinueExpired, list, never, true},
	}
	for name, tc := range cases {
		for _, options := range [][]Option{nil, {HTTP1()}} {
			t.Run(fmt.Sprintf("%s/HTTP%d", name, 2-len(options)), func(t *testing.T) {
				s := newAPIServer(t)
				p := startProxy(t, s, options...)
				f := p.RandomFaults(1, 1, tc.kind)
				config := p.Config()
				// client-go would retry by itself what says Retry-After, ten times.
				config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return noRetryAfter{t, tc.kind, rt} }
				if err := tc.do(client(t, config)); !tc.want(err) {
					t.Errorf("%s\n%s: the client got %v", tc.reason, tc.kind, err)
				}
				p.Close()
				s.mu.Lock()
				placed := len(s.requests) > 0
				s.mu.Unlock()
				if placed != tc.placed {
					t.Errorf("%s\n%s: took place at the API server: %v, want %v", tc.reason, tc.kind, placed, tc.placed)
				}
				if _, faults := f.Total(); (faults > 0) == tc.want(nil) {
					t.Errorf("%s\ncounted: %s", tc.reason, f)
				}
			})
		}
	}
}

// noRetryAfter checks that Retry-After is there where it should be, and removes it.
type noRetryAfter struct {
	t    *testing.T
	kind Kind
	http.RoundTripper
}

func (n noRetryAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := n.RoundTripper.RoundTrip(r)
	if err == nil {
		want := ""
		if n.kind == TooManyRequests || n.kind == UnavailableRetryAfter {
			want = "1"
		}
		if got := response.Header.Get("Retry-After"); got != want {
			n.t.Errorf("%s: Retry-After %q, want %q", n.kind, got, want)
		}
		response.Header.Del("Retry-After")
	}
	return response, err
}

func TestResetIsATCPReset(t *testing.T) {
	s := newAPIServer(t)
	p := startProxy(t, s, HTTP1())
	p.RandomFaults(1, 1, ResetBefore)
	_, err := client(t, p.Config()).Create(t.Context(), configMap("x"), metav1.CreateOptions{})
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want ECONNRESET: an orderly close is another failure", err)
	}
}

func TestResetOfAWatch(t *testing.T) {
	// By plain HTTP: client-go hides it behind ten retries and an empty watch.
	s := newAPIServer(t)
	p := startProxy(t, s)
	p.RandomFaults(1, 1, ResetBefore)
	h, err := rest.HTTPClientFor(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	response, err := h.Get(p.Config().Host + "/api/v1/configmaps?watch=true")
	if err == nil {
		response.Body.Close()
		t.Errorf("the opening of the watch was answered with %s, want a reset", response.Status)
	}
}

func TestResetTakesTheConnectionAlong(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := newAPIServer(t)
	p := startProxy(t, s)
	c := client(t, p.Config())
	w, err := c.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.RandomFaults(1, 1, ResetBefore)
	if _, err := c.Create(ctx, configMap("x"), metav1.CreateOptions{}); !broken(err) {
		t.Errorf("create: %v", err)
	}
	for {
		select {
		case _, ok := <-w.ResultChan():
			if !ok {
				return
			}
		case <-ctx.Done():
			t.Fatal("over HTTP/2 a reset must end the watch on the same connection")
		}
	}
}

func TestWatchFaults(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   Kind
		last   bool // an ERROR event says why
	}{
		"Expired": {"A watch that expires says so in its last event.", WatchExpired, true},
		"Cut":     {"A watch that is cut says nothing.", WatchCut, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s := newAPIServer(t)
			p := startProxy(t, s)
			p.RandomFaults(3, 1, tc.kind)
			w, err := client(t, p.Config()).Watch(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for i := 0; ; i++ {
					select {
					case s.events <- fmt.Sprint(i):
					case <-ctx.Done():
						return
					}
				}
			}()
			var events []watch.Event
			for {
				e, ok := <-w.ResultChan()
				if !ok {
					break
				}
				events = append(events, e)
				if len(events) > 10 {
					t.Fatalf("%s\nthe watch goes on and on", tc.reason)
				}
			}
			// client-go too reports a broken stream by an ERROR event, with code 500.
			gone := slices.ContainsFunc(events, func(e watch.Event) bool {
				err := apierrors.FromObject(e.Object)
				return e.Type == watch.Error && (apierrors.IsGone(err) || apierrors.IsResourceExpired(err))
			})
			if gone != tc.last {
				t.Errorf("%s\nevents: %v", tc.reason, events)
			}
		})
	}
}

func TestQuietWatchExpires(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := newAPIServer(t)
	p := startProxy(t, s)
	p.RandomFaults(1, 1, WatchExpired)
	w, err := client(t, p.Config()).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := next(ctx, t, w); e.Type != watch.Error {
		t.Errorf("got %v, want an ERROR event although nothing ever happened", e)
	}
}

func TestRate(t *testing.T) {
	f := &Faults{kinds: Kinds(), rate: 0.2, rng: rand.New(rand.NewPCG(1, 0)), counts: map[Kind]int{}}
	requests := []Request{
		{Verb: "create"}, {Verb: "patch"}, {Verb: "get"}, {Verb: "list", Continues: true}, {Verb: "watch"},
	}
	for i := range requests {
		requests[i].Resource = "configmaps"
	}
	const n = 20000
	for i := range n {
		r := requests[i%len(requests)]
		if d, ok := f.draw(r); ok && !applies[d.kind](r) {
			t.Fatalf("%s was dealt to %s", d.kind, r)
		}
	}
	total, faults := f.Total()
	if rate := float64(faults) / n; total != n || rate < 0.18 || rate > 0.22 {
		t.Errorf("%s, want 20 %%", f)
	}
	for _, k := range Kinds() {
		if f.Counts()[k] == 0 {
			t.Errorf("%s was never dealt", k)
		}
	}
}

func TestInconsistentContinue(t *testing.T) {
	encode := base64.RawURLEncoding.EncodeToString
	cases := map[string]struct{ reason, token, want string }{
		"OfAnAPIServer": {
			"The rest can be had without a resource version.",
			encode([]byte(`{"v":"meta.k8s.io/v1","rv":42,"start":"n/x\u0000"}`)),
			encode([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"n/x\u0000"}`)),
		},
		"Foreign":   {"A token that only looks right is not made up.", encode([]byte(`{"page":2}`)), ""},
		"NotBase64": {"Anything may be a token.", "%%", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, inconsistent(tc.token)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
