package prober

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const patience = time.Minute

// path is an event path with faults: it takes events and hands their data to the
// subscriber.
type path struct {
	subscriber http.Handler

	mu    sync.Mutex
	fault string
	seen  map[string]int
	late  []string
}

func (p *path) set(fault string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

func (p *path) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	var event struct {
		ID   string          `json:"event-id"`
		Data json.RawMessage `json:"data"`
	}
	if err != nil || json.Unmarshal(raw, &event) != nil {
		http.Error(w, "no event", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	fault := p.fault
	p.seen[event.ID]++
	first := p.seen[event.ID] == 1
	if fault == "keeps" {
		p.late = append(p.late, string(event.Data))
	}
	p.mu.Unlock()
	times := 1
	switch {
	case fault == "refuses" && first:
		w.Header().Set("Retry-After", "0")
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	case fault == "resets" && first:
		panic(http.ErrAbortHandler)
	case fault == "drops", fault == "keeps":
		times = 0
	case fault == "doubles":
		times = 2
	}
	for range times {
		p.deliver(string(event.Data))
	}
}

func (p *path) deliver(data string) {
	p.subscriber.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(data)))
}

// TestProber: each fault of an event path is found, with the step in which it was,
// and what a client can mend by sending again is no loss.
func TestProber(t *testing.T) {
	const perStep = 20
	faulty := &path{seen: map[string]int{}}
	service := httptest.NewServer(faulty)
	defer service.Close()
	p := New([]Target{{"a", service.URL, "order.created"}, {"b", service.URL, "order.created"}},
		Options{Interval: time.Millisecond, LateAfter: 500 * time.Millisecond})
	faulty.subscriber = p
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sending, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(sending)
	}()
	accept := func() {
		if err := p.AwaitAccepted(ctx, perStep); err != nil {
			t.Fatal(err)
		}
	}
	accept()
	// Between two faults there is a step without one: an event is counted for the
	// step in which it was sent, and the fault meets it a moment later.
	for _, fault := range []string{"refuses", "resets", "drops", "doubles", "keeps"} {
		p.Step("before it " + fault)
		accept()
		p.Step("it " + fault)
		faulty.set(fault)
		accept()
		faulty.set("")
		p.Step("after it " + fault)
		accept()
	}
	time.Sleep(600 * time.Millisecond) // what was kept is late now
	stop()
	<-done
	for _, data := range faulty.late {
		faulty.deliver(data)
	}
	short, end := context.WithTimeout(ctx, 100*time.Millisecond)
	defer end()
	if err := p.Await(short); err == nil || !strings.Contains(err.Error(), "have not arrived") {
		t.Errorf("events that were dropped have arrived: %v", err)
	}

	r := p.Report()
	near := func(events []Event, fault string) {
		t.Helper()
		if len(events) == 0 {
			t.Errorf("the prober has not noticed that the path %s events", fault)
		}
		for i := range events {
			if !strings.HasSuffix(events[i].Step, "it "+fault) {
				t.Errorf("the path %s events, and the prober blames %s", fault, &events[i])
			}
		}
	}
	near(r.Missing, "drops")
	near(r.Duplicates, "doubles")
	near(r.Late, "keeps")
	if len(r.GivenUp) != 0 || r.Repeated == 0 {
		t.Errorf("%d events given up, %d repetitions", len(r.GivenUp), r.Repeated)
	}
	total := 0
	for _, s := range r.Steps {
		total += s.Accepted
		if clean := strings.HasSuffix(s.Step, "refuses") || strings.HasSuffix(s.Step, "resets"); clean && s.Missing+s.Duplicates+s.Late > 0 {
			t.Errorf("what a client can mend is no fault: %+v", s)
		}
	}
	if total != r.Accepted || r.Accepted != r.Sent || r.LongestDelay < 500*time.Millisecond {
		t.Errorf("the sums do not agree:\n%s", r)
	}
	for _, want := range []string{`during "it drops"`, "missing: event ", "twice: event ", "late: event "} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, r)
		}
	}
}

// TestGivingUp: what is never accepted is not lost.
func TestGivingUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "never", http.StatusInternalServerError)
		cancel() // one event is enough
	}))
	defer service.Close()
	p := New([]Target{{"a", service.URL, "order.created"}}, Options{Interval: time.Millisecond, GiveUpAfter: 100 * time.Millisecond})
	p.Run(ctx)
	r := p.Report()
	if r.Sent == 0 || len(r.GivenUp) != r.Sent || len(r.Missing) != 0 || r.GivenUp[0].LastRefusal == "" {
		t.Errorf("%s", r)
	}
}

// TestMaxPending: while so many are refused, no other is begun; and then they go on.
func TestMaxPending(t *testing.T) {
	const most = 3
	var mu sync.Mutex
	refused, open := map[string]bool{}, false
	enough := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if open {
			return
		}
		refused[string(raw)] = true
		if len(refused) == most {
			select {
			case <-enough:
			default:
				close(enough)
			}
		}
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	defer service.Close()
	p := New([]Target{{"a", service.URL, "order.created"}}, Options{Interval: time.Millisecond, MaxPending: most})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sending, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(sending)
	}()
	<-enough
	time.Sleep(50 * time.Millisecond)
	mu.Lock()
	if len(refused) != most {
		t.Errorf("%d events are under way, want %d", len(refused), most)
	}
	open = true
	mu.Unlock()
	if err := p.AwaitAccepted(ctx, 10*most); err != nil {
		t.Error(err)
	}
	stop()
	<-done
}
