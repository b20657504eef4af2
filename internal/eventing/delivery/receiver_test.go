package delivery

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/budget"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/tally"
)

// meshSink is a sink, and a Receiver before it that knows the Subscription shop/orders.
type meshSink struct {
	receiver *Receiver
	mu       sync.Mutex
	got      []*http.Request
	bodies   []string
	answer   http.HandlerFunc
	probed   []string
}

func startMeshSink(t *testing.T, settings Settings) *meshSink {
	t.Helper()
	s := &meshSink{answer: func(http.ResponseWriter, *http.Request) {}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got, s.bodies = append(s.got, r), append(s.bodies, string(body))
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	sender := &Sender{transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}}}
	s.receiver = NewReceiver(Options{
		Sender: sender, Metrics: tally.New(prometheus.NewRegistry()), Log: zap.NewNop(), Changed: func(types.NamespacedName, time.Duration) {},
	}, &known{settings: settings, probed: &s.probed})
	return s
}

// known knows the Subscriptions orders and slow.
type known struct {
	settings Settings
	probed   *[]string
	letters  map[string]bool // who has a dead letter sink of its own
}

func (k *known) Find(_ context.Context, key types.NamespacedName) (Settings, error) {
	switch key.Name {
	case "orders", "slow":
		return k.settings, nil
	case "invalid":
		return Settings{}, ErrInvalid
	case "unknown":
		return Settings{}, errors.New("the API server does not answer")
	default:
		return Settings{}, ErrGone
	}
}

// Match knows who wants events of these types.
func (k *known) Match(source, eventType string) (all []Recipient, err error) {
	of := map[string][]string{"a.b": {"orders"}, "many": {"orders", "slow", "third"}, "nobody": nil}
	names, ok := of[eventType]
	if !ok || source != "shop" {
		return nil, errors.New("this process is behind")
	}
	for _, name := range names {
		settings := k.settings
		settings.Sink = "http://" + name + ".shop.svc.cluster.local/in"
		settings.UID = types.UID(name)
		if k.letters[name] {
			settings.DeadLetterSink = "http://letters.shop.svc.cluster.local/of-" + name
		}
		all = append(all, Recipient{types.NamespacedName{Namespace: "shop", Name: name}, settings})
	}
	return all, nil
}

func (k *known) Probed(_ context.Context, trigger string) { *k.probed = append(*k.probed, trigger) }

func (s *meshSink) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

func (s *meshSink) post(method, path, body string, change func(http.Header)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header = http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"shop"}, "Ce-Type": {"a.b"}, "Content-Type": {"text/plain"}, "Traceparent": {"00-1-2-01"},
		"Ce-Knativearrivaltime": {"now"}, "Kn-Namespace": {"kyma-system"}, "User-Agent": {"Go"}, "Authorization": {"x"},
	}
	if change != nil {
		change(r.Header)
	}
	w := httptest.NewRecorder()
	s.receiver.ServeHTTP(w, r)
	return w
}

var ordersSink = Settings{Sink: "http://orders.shop.svc.cluster.local/in?a=b", MaxInFlight: 2}

func TestReceiver(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for _, tc := range []struct {
		reason, method, path, body string
		change                     func(http.Header)
		answer                     http.HandlerFunc
		want, posted               int
		code                       string // the body of the answer
	}{
		{reason: "an event", want: 204, posted: 1},
		{reason: "no data", body: "-", want: 204, posted: 1},
		{reason: "a time that Knative has changed", change: func(h http.Header) { h.Set("Ce-Time", "1"); h.Set("ce-"+backend.TimeAttribute, "2") }, want: 204, posted: 1},
		{reason: "the answer of the sink has a body", answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }, want: 204, posted: 1},
		{reason: "the sink refuses", answer: status(400), want: 502, posted: 1, code: "400"},
		{reason: "the sink redirects", answer: status(307), want: 502, posted: 1, code: "307"},
		{reason: "the sink ends the connection", answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: 502, posted: 1, code: codeError},
		{reason: "a Subscription that is gone", path: "/deliver/shop/gone", want: 204},
		{reason: "a Subscription with errors", path: "/deliver/shop/invalid", want: 503},
		{reason: "a Subscription that cannot be found", path: "/deliver/shop/unknown", want: 503},
		{reason: "another path", path: "/deliver/shop", want: 404},
		{reason: "a longer path", path: "/deliver/shop/orders/more", want: 404},
		{reason: "a path without a namespace", path: "/deliver//orders", want: 404},
		{reason: "another method", method: http.MethodGet, want: 405},
		{reason: "no event", change: func(h http.Header) { h.Del("Ce-Id") }, want: 400},
		{reason: "an event in structured mode", change: func(h http.Header) { h.Del("Ce-Specversion"); h.Set("Content-Type", "application/cloudevents+json") }, want: 400},
		{reason: "too large", body: strings.Repeat("x", maxEvent+1), want: 413},
		{reason: "as large as may be", body: strings.Repeat("x", 1<<20), want: 204, posted: 1},
	} {
		s := startMeshSink(t, ordersSink)
		if tc.answer != nil {
			s.answer = tc.answer
		}
		body := strings.TrimPrefix(tc.body, "-")
		if tc.body == "" {
			body = "x"
		}
		method, path := tc.method, tc.path
		if method == "" {
			method = http.MethodPost
		}
		if path == "" {
			path = "/deliver/shop/orders"
		}
		got := s.post(method, path, body, tc.change)
		if got.Code != tc.want || s.requests() != tc.posted || got.Body.String() != tc.code {
			t.Errorf("%s: %d with %q after %d requests, want %d with %q after %d", tc.reason, got.Code, got.Body, s.requests(), tc.want, tc.code, tc.posted)
			continue
		}
		if tc.posted == 0 {
			continue
		}
		want := http.Header{
			"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"shop"}, "Ce-Type": {"a.b"}, "Ce-Originaltype": {"a.b"}, "Content-Type": {"text/plain"}, "Traceparent": {"00-1-2-01"},
			"User-Agent": {"eventing-controller"}, "Content-Length": s.got[0].Header["Content-Length"], "Accept-Encoding": s.got[0].Header["Accept-Encoding"],
		}
		if strings.Contains(tc.reason, "time") {
			want["Ce-Time"] = []string{"2"}
		}
		for name, values := range want {
			if values == nil {
				delete(want, name)
			}
		}
		if diff := cmp.Diff(want, s.got[0].Header); diff != "" {
			t.Errorf("%s: header at the sink (-want +got):\n%s", tc.reason, diff)
		}
		if s.bodies[0] != body || s.got[0].RequestURI != "/in?a=b" || s.got[0].Host != "orders.shop.svc.cluster.local" {
			t.Errorf("%s: the request is %s to %s with %q", tc.reason, s.got[0].RequestURI, s.got[0].Host, s.bodies[0])
		}
	}
}

// TestReceiverGivesUp: what a sink did not take goes to the dead letter sink of the Subscription,
// or else to that of the installation, and what was not brought there stays with the client.
func TestReceiverGivesUp(t *testing.T) {
	// knative adds what Knative v0.49 does: kncloudevents.dispatchExecutionInfoTransformers.
	knative := func(dest, code, body string) func(http.Header) {
		return func(h http.Header) {
			h.Set(deadLetterDest, dest)
			h.Set(deadLetterCode, code)
			h.Set(errorData, base64.StdEncoding.EncodeToString([]byte(body)))
		}
	}
	const ours, theirs = "http://eventing-controller.kyma-system.svc.cluster.local/deliver/shop/orders?trigger=a.b", "http://audit.other.svc.cluster.local/"
	own, all := "http://letters.shop.svc.cluster.local/own", "http://letters.kyma.svc.cluster.local/all"
	for _, tc := range []struct {
		reason, own, all, dest, code, body string
		change                             func(http.Header)
		status                             int // of the dead letter sink
		want                               int
		at, letterDest, letterCode         string // "" if the dead letter sink is not asked
	}{
		{reason: "a sink that refused", own: own, all: all, dest: ours, code: "502", body: "400", want: 204, at: "/own", letterDest: ordersSink.Sink, letterCode: "400"},
		{reason: "the sink of the installation", all: all, dest: ours, code: "502", body: codeError, want: 204, at: "/all", letterDest: ordersSink.Sink, letterCode: codeError},
		{reason: "a sink that is left alone, since it refused", own: own, dest: ours, code: "503", body: codeOpen, want: 204, at: "/own", letterDest: ordersSink.Sink, letterCode: "503"},
		{reason: "no dead letter sink", dest: ours, code: "502", body: "400", want: 400},
		{reason: "no slot", own: own, dest: ours, code: "503", body: codeBusy, want: 400},
		{reason: "a Subscription that could not be read", own: own, dest: ours, code: "503", want: 400},
		{reason: "a dead letter sink that refuses", own: own, all: all, dest: ours, code: "502", body: "400", status: 500, want: 400, at: "/own", letterDest: ordersSink.Sink, letterCode: "400"},
		{reason: "a Subscription that is gone", own: own, dest: strings.Replace(ours, "orders", "gone", 1), code: "502", body: "400", want: 204},
		{reason: "a Subscription that cannot be read now", own: own, dest: strings.Replace(ours, "orders", "unknown", 1), code: "502", body: "400", want: 503},
		{reason: "a Trigger of somebody else", own: own, all: all, dest: theirs, code: "500", body: "no", want: 204, at: "/all", letterDest: theirs, letterCode: "500"},
		{reason: "a Trigger of somebody else, and no dead letter sink", own: own, dest: theirs, code: "500", body: "no", want: 400},
		{reason: "what was for all Subscriptions", own: own, all: all, dest: "http://eventing-controller.kyma-system.svc.cluster.local/events?trigger=1", code: "400", body: "busy", want: 400},
		{reason: "a probe", own: own, all: all, dest: ours, code: "502", body: "400", change: func(h http.Header) { h.Set(probeHeader, "all") }, want: 400},
		{reason: "no event", own: own, dest: ours, code: "502", body: "400", change: func(h http.Header) { h.Del("Ce-Id") }, want: 400},
	} {
		settings := ordersSink
		settings.DeadLetterSink = tc.own
		s := startMeshSink(t, settings)
		if tc.all != "" {
			s.receiver.options.DeadLetterSink, _ = url.Parse(tc.all)
		}
		if tc.status != 0 {
			s.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tc.status) }
		}
		got := s.post(http.MethodPost, backend.DeadLetterPath, "x", func(h http.Header) {
			knative(tc.dest, tc.code, tc.body)(h)
			if tc.change != nil {
				tc.change(h)
			}
		})
		asked := 0
		if tc.at != "" {
			asked = 1
		}
		if got.Code != tc.want || s.requests() != asked || len(s.probed) > 0 {
			t.Errorf("%s: %d after %d requests, want %d after %d; probed: %q", tc.reason, got.Code, s.requests(), tc.want, asked, s.probed)
			continue
		}
		if asked == 0 {
			continue
		}
		h := s.got[0].Header
		if s.got[0].RequestURI != tc.at || s.bodies[0] != "x" || h.Get("Ce-Id") != "1" || h.Get(deadLetterDest) != tc.letterDest || h.Get(deadLetterCode) != tc.letterCode {
			t.Errorf("%s: at %s with %v, want %s of %s with %s", tc.reason, s.got[0].RequestURI, h, tc.at, tc.letterDest, tc.letterCode)
		}
		is, _ := s.receiver.target(types.NamespacedName{Namespace: "shop", Name: "orders"}, settings, Sink{url: &url.URL{}}).health.Record()
		if told := !is.Posted.IsZero(); told != (tc.want == 204 && tc.dest == ours) {
			t.Errorf("%s: the health of the Subscription knows of a dead letter: %t", tc.reason, told)
		}
	}
}

// TestReceiverGetsProbes: a probe goes to no sink. Nobody waits for those of an earlier version.
func TestReceiverGetsProbes(t *testing.T) {
	s := startMeshSink(t, ordersSink)
	for path, want := range map[string]string{"/events?trigger=1": "1", "/deliver/shop/orders?trigger=2": "", "/deliver/shop/gone": ""} {
		s.probed = nil
		got := s.post(http.MethodPost, path, "", func(h http.Header) {
			h.Set("ce-"+backend.ProbeAttribute, "true")
			h.Set("Ce-Type", "probe")
		})
		if got.Code != http.StatusNoContent || s.requests() != 0 || strings.Join(s.probed, " ") != want {
			t.Errorf("%s: %d after %d requests and the probes %q, want %q", path, got.Code, s.requests(), s.probed, want)
		}
	}
}

// TestReceiverBringsToAll: one request brings an event to each Subscription that wants it. A sink
// that does not take it is asked again, and no other one is. After the last try the event goes to
// the dead letter sink, or the publish fails.
func TestReceiverBringsToAll(t *testing.T) {
	const many = "many"
	for _, tc := range []struct {
		reason, eventType string
		fails             map[string]int // how often, by host
		letters           []string
		change            func(http.Header)
		want              int
		body              string
		posted            map[string]int
		again             []string // who is asked when the client repeats the event, and all sinks work
	}{
		{reason: "one", eventType: "a.b", want: 204, posted: map[string]int{"orders": 1}},
		{reason: "several", eventType: many, want: 204, posted: map[string]int{"orders": 1, "slow": 1, "third": 1}},
		{reason: "nobody", eventType: "nobody", want: 204},
		{reason: "a process that is behind", eventType: "unknown", want: 503},
		{reason: "one fails once", eventType: many, fails: map[string]int{"slow": 1}, want: 204, posted: map[string]int{"orders": 1, "slow": 2, "third": 1}},
		{reason: "one fails", eventType: many, fails: map[string]int{"slow": 9}, want: 400, body: "1 of 3 sinks did not take the event: 500", posted: map[string]int{"orders": 1, "slow": 3, "third": 1}, again: []string{"slow"}},
		{reason: "two fail, and one of them has a dead letter sink", eventType: many, fails: map[string]int{"slow": 9, "third": 9}, letters: []string{"slow"},
			want: 400, body: "1 of 3 sinks did not take the event: 500", posted: map[string]int{"orders": 1, "slow": 3, "third": 3, "letters/of-slow": 1}, again: []string{"third"}},
		{reason: "one fails, and has a dead letter sink", eventType: many, fails: map[string]int{"slow": 9}, letters: []string{"slow"}, want: 204, posted: map[string]int{"orders": 1, "slow": 3, "third": 1, "letters/of-slow": 1}},
		{reason: "its dead letter sink fails, too", eventType: many, fails: map[string]int{"slow": 9, "letters": 9}, letters: []string{"slow"}, want: 400, body: "1 of 3 sinks did not take the event: 500", posted: map[string]int{"orders": 1, "slow": 3, "third": 1, "letters/of-slow": 1}, again: []string{"slow"}},
		{reason: "no event", eventType: many, change: func(h http.Header) { h.Del("Ce-Id") }, want: 400},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := startMeshSink(t, ordersSink)
			s.receiver.find.(*known).letters = map[string]bool{}
			for _, name := range tc.letters {
				s.receiver.find.(*known).letters[name] = true
			}
			posted := map[string]int{}
			s.answer = func(w http.ResponseWriter, q *http.Request) {
				s.mu.Lock()
				defer s.mu.Unlock()
				host, _, _ := strings.Cut(q.Host, ".")
				name := host
				if host == "letters" {
					name += q.URL.Path
				}
				if posted[name]++; posted[name] <= tc.fails[host] {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}
			change := func(h http.Header) {
				h.Set("Ce-Type", tc.eventType)
				if tc.change != nil {
					tc.change(h)
				}
			}
			got := s.post(http.MethodPost, backend.EventsPath+"?trigger=1", "x", change)
			if diff := cmp.Diff(tc.posted, posted, cmpopts.EquateEmpty()); diff != "" || got.Code != tc.want || got.Body.String() != tc.body {
				t.Errorf("%d with %q, want %d with %q; requests (-want +got):\n%s", got.Code, got.Body, tc.want, tc.body, diff)
			}
			if tc.want == 503 && got.Header().Get("Retry-After") == "" {
				t.Error("the mesh is not told when to ask again")
			}
			if tc.want != 400 || tc.change != nil {
				return
			}
			// The client sends it again when the sinks work: only those get it that had not.
			before := maps.Clone(posted)
			clear(tc.fails)
			if got := s.post(http.MethodPost, backend.EventsPath+"?trigger=1", "x", change); got.Code != http.StatusNoContent {
				t.Errorf("when the sinks work: %d", got.Code)
			}
			var again []string
			for name, n := range posted {
				if n > before[name] {
					again = append(again, name)
				}
			}
			if diff := cmp.Diff(tc.again, again); diff != "" {
				t.Errorf("who is asked again (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReceiverBringsToManyInLittleMemory: an event for more Subscriptions than there is room for at
// once is brought to all.
func TestReceiverBringsToManyInLittleMemory(t *testing.T) {
	t.Parallel()
	s := startMeshSink(t, ordersSink)
	s.receiver.options.Budget = budget.New(0, nil)
	others := budget.NewShare(s.receiver.options.Budget, func() {})
	others.Force(budget.Least - 110<<10) // one more than the request itself is posted at a time
	s.answer = func(http.ResponseWriter, *http.Request) { time.Sleep(50 * time.Millisecond) }
	if got := s.post(http.MethodPost, backend.EventsPath, "x", func(h http.Header) { h.Set("Ce-Type", "many") }); got.Code != http.StatusNoContent || s.requests() != 3 {
		t.Errorf("%d with %q after %d requests", got.Code, got.Body, s.requests())
	}
	others.Give(budget.Least - 110<<10)
	if used, _, waiting := s.receiver.options.Budget.Usage(); used != 0 || waiting > 0 {
		t.Errorf("at the end %d bytes are used, and %d wait", used, waiting)
	}
}

// TestReceiverRepeats: an event that the sink has taken is not brought there again, and any other
// one is, also one that it has refused.
func TestReceiverRepeats(t *testing.T) {
	s := startMeshSink(t, ordersSink)
	of := s.receiver.find.(*known)
	for _, step := range []struct {
		reason, body string
		change       func(http.Header)
		before       func()
		asked        bool
	}{
		{reason: "an event", body: "x", asked: true},
		{reason: "the same event", body: "x"},
		{reason: "other data", body: "y", asked: true},
		{reason: "another id", body: "x", change: func(h http.Header) { h.Set("Ce-Id", "2") }, asked: true},
		{reason: "another source", body: "x", change: func(h http.Header) { h.Set("Ce-Source", "shop1") }, asked: true},
		{reason: "parts that are divided otherwise", body: "x", change: func(h http.Header) { h.Set("Ce-Source", "sho"); h.Set("Ce-Id", "p1") }, asked: true},
		{reason: "another type", body: "x", change: func(h http.Header) { h.Set("Ce-Type", "a.c") }, asked: true},
		{reason: "the same event, by another Trigger", body: "x", change: func(h http.Header) { h.Set("Traceparent", "00-3-4-01") }},
		{reason: "the Subscription was created again", body: "x", before: func() { of.settings.UID = "another" }, asked: true},
		{reason: "the Subscription has another sink", body: "x", before: func() { of.settings.Sink = "http://new.shop.svc.cluster.local" }, asked: true},
		{reason: "the same event at the other sink", body: "x"},
		{reason: "an event that is refused", body: "z", before: func() {
			s.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }
		}, asked: true},
		{reason: "and comes again", body: "z", asked: true},
		{reason: "an event that was taken comes again, while the sink refuses others", body: "x"},
	} {
		if step.before != nil {
			s.mu.Lock()
			step.before()
			s.mu.Unlock()
		}
		before := s.requests()
		s.post(http.MethodPost, "/deliver/shop/orders", step.body, step.change)
		if asked := s.requests() > before; asked != step.asked {
			t.Errorf("%s: the sink is asked: %t", step.reason, asked)
		}
	}
}

// TestReceiverLeavesASinkAlone: a sink that failed five times in a row is not asked for a while,
// and then with one event.
func TestReceiverLeavesASinkAlone(t *testing.T) {
	t.Parallel()
	s := startMeshSink(t, ordersSink)
	s.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	post := func() *httptest.ResponseRecorder { return s.post(http.MethodPost, "/deliver/shop/orders", "x", nil) }
	for range failuresToOpen {
		if got := post(); got.Code != http.StatusBadGateway {
			t.Fatalf("the sink fails: %d", got.Code)
		}
	}
	opened := time.Now()
	if got := post(); got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") != "5" || s.requests() != failuresToOpen {
		t.Fatalf("a sink that failed often: %d with Retry-After %q after %d requests", got.Code, got.Header().Get("Retry-After"), s.requests())
	}
	if h := s.receiver.Health(types.NamespacedName{Namespace: "shop", Name: "orders"}); !h.Known || h.Problem != "the sink answers 500" {
		t.Errorf("health: %+v", h)
	}
	s.mu.Lock()
	s.answer = func(http.ResponseWriter, *http.Request) {}
	s.mu.Unlock()
	time.Sleep(time.Until(opened.Add(openFor + 100*time.Millisecond)))
	if got := post(); got.Code != http.StatusNoContent {
		t.Errorf("the sink works again: %d", got.Code)
	}
	if got := post(); got.Code != http.StatusNoContent {
		t.Errorf("after one event that was taken: %d", got.Code)
	}
}

// TestReceiverBoundsWhatIsInFlight: more events than slots wait for one, but not for long.
func TestReceiverBoundsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	s := startMeshSink(t, ordersSink)
	free := make(chan struct{})
	s.answer = func(http.ResponseWriter, *http.Request) { <-free }
	const events = 5
	codes := make(chan int, events)
	for range events {
		go func() { codes <- s.post(http.MethodPost, "/deliver/shop/orders", "x", nil).Code }()
	}
	began := time.Now()
	for range events - ordersSink.MaxInFlight {
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("an event without a slot: %d", code)
		}
	}
	if waited := time.Since(began); waited < backend.MeshSlotTimeout {
		t.Errorf("events waited only %s for a slot", waited)
	}
	if n := s.requests(); n != ordersSink.MaxInFlight {
		t.Errorf("the sink has %d events at the same time, want %d", n, ordersSink.MaxInFlight)
	}
	close(free)
	for range ordersSink.MaxInFlight {
		if code := <-codes; code != http.StatusNoContent {
			t.Errorf("an event with a slot: %d", code)
		}
	}
}

// TestReceiverMemory: events of the mesh have the same budget of bytes as those of NATS, and are
// refused for a moment when there is no room. On f3299ef each was read.
func TestReceiverMemory(t *testing.T) {
	s := startMeshSink(t, ordersSink)
	s.receiver.options.Budget = budget.New(0, nil)
	all := budget.NewShare(s.receiver.options.Budget, func() {})
	var got []int
	ask := func() {
		t.Helper()
		w := s.post(http.MethodPost, "/deliver/shop/orders", strings.Repeat("x", 1<<20), func(h http.Header) { h.Set("Ce-Id", fmt.Sprint(len(got))) })
		got = append(got, w.Code)
		if w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "1" {
			t.Errorf("refused with %v", w.Header())
		}
	}
	ask()
	all.Force(budget.Least - 1<<20)
	ask()
	all.Give(budget.Least - 1<<20)
	ask()
	if diff := cmp.Diff([]int{204, 503, 204}, got); diff != "" || s.requests() != 2 {
		t.Errorf("%d requests (-want +got):\n%s", s.requests(), diff)
	}
	if used, _, waiting := s.receiver.options.Budget.Usage(); used != 0 || waiting > 0 {
		t.Errorf("at the end %d bytes are used, and %d wait", used, waiting)
	}
}

// TestReceiverMemoryIsShared: a Subscription with a slow sink has half of the budget, and the
// events of others have room. Before, each request counted for itself, and it had all of it.
func TestReceiverMemoryIsShared(t *testing.T) {
	t.Parallel()
	s := startMeshSink(t, Settings{Sink: ordersSink.Sink, MaxInFlight: 100})
	s.receiver.options.Budget = budget.New(0, nil)
	free := make(chan struct{})
	s.answer = func(_ http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Ce-Id") == "slow" {
			<-free
		}
	}
	const events = 2 * budget.Least >> 20
	codes := make(chan int, events)
	slow := func(h http.Header) { h.Set("Ce-Id", "slow") }
	for range events {
		go func() {
			codes <- s.post(http.MethodPost, "/deliver/shop/slow", strings.Repeat("x", 1<<20), slow).Code
		}()
	}
	refused := 0
	for range events - budget.Least>>20/2 { // what has no room at once
		if code := <-codes; code == http.StatusServiceUnavailable {
			refused++
		}
	}
	for range 3 {
		if code := s.post(http.MethodPost, "/deliver/shop/orders", strings.Repeat("x", 1<<20), nil).Code; code != http.StatusNoContent {
			t.Errorf("an event of another Subscription: %d", code)
		}
	}
	close(free)
	for range budget.Least >> 20 / 2 {
		<-codes
	}
	if want := events - budget.Least>>20/2; refused != want {
		t.Errorf("%d events were refused, want %d", refused, want)
	}
	if used, _, waiting := s.receiver.options.Budget.Usage(); used != 0 || waiting > 0 || len(s.receiver.bytes) > 0 {
		t.Errorf("at the end %d bytes are used, %d wait, and %v is kept", used, waiting, s.receiver.bytes)
	}
}

// TestReceiverOfTwoVersions: an event that a Trigger of an earlier version leads here is delivered
// until each of them has come through the Trigger for all, too.
func TestReceiverOfTwoVersions(t *testing.T) {
	s := startMeshSink(t, ordersSink)
	former := func(id string, arrived ...time.Time) {
		t.Helper()
		if w := s.post(http.MethodPost, "/deliver/shop/orders", "", func(h http.Header) {
			h.Set("Ce-Id", id)
			for _, at := range arrived {
				h.Set("Ce-Knativearrivaltime", at.UTC().Format(time.RFC3339Nano))
			}
		}); w.Code != http.StatusNoContent {
			t.Errorf("event %s is answered with %d", id, w.Code)
		}
	}
	posted := func(want int, when string) {
		t.Helper()
		if is := s.requests(); is != want {
			t.Errorf("%s: the sink has got %d events, want %d", when, is, want)
		}
	}
	former("1")
	posted(1, "before the Trigger for all")
	if w := s.post(http.MethodPost, backend.EventsPath, "", func(h http.Header) { h.Set(probeHeader, "1") }); w.Code != http.StatusNoContent {
		t.Fatalf("the probe is answered with %d", w.Code)
	}
	former("2")
	posted(2, "an event that was sent before")
	s.receiver.all = time.Now().Add(-clockSkew)
	former("before", s.receiver.all.Add(-time.Second))
	former("skew", s.receiver.all.Add(clockSkew-time.Second))
	posted(4, "events that the Broker may have got before")
	former("after", s.receiver.all.Add(clockSkew+time.Second))
	posted(4, "an event that the Broker got after that")
	s.receiver.all = time.Now().Add(-backend.MeshTimeout - time.Second)
	former("3")
	posted(4, "after the time that an event takes")
	if w := s.post(http.MethodPost, backend.EventsPath, "", func(h http.Header) { h.Set("Ce-Id", "3") }); w.Code != http.StatusNoContent {
		t.Fatalf("the event for all is answered with %d", w.Code)
	}
	posted(5, "the same event through the Trigger for all")
}
