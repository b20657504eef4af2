// Package prober detects lost events. It posts numbered events to the legacy endpoint of every
// Application, as a client of that API may: it sends an event that was not accepted again, with the
// same id. It is also the subscriber. In the end it reports every accepted event that did not
// arrive, arrived twice, or arrived late, with the step during which the event was sent.
package prober

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Target is an Application that events are sent for.
type Target struct {
	Application string
	// URL is that of POST /{application}/v1/events.
	URL string
	// EventType is sent, with version v1.
	EventType string
}

// Options of a Prober. The zero value is one event each 10 ms over all targets.
type Options struct {
	// Interval between two events, over all targets; 0: 10 ms.
	Interval time.Duration
	// LateAfter is from when on an event counts as late; 0: 5 s.
	LateAfter time.Duration
	// GiveUpAfter is how long one event is repeated; 0: 5 min. An event that is given
	// up was never accepted, and is not lost.
	GiveUpAfter time.Duration
	// MaxPending events are under way at once, as a client has so many workers: while
	// none of them is accepted, no other is begun. 0: no limit.
	MaxPending int
	// Client posts the events; nil: one with a timeout of 15 s.
	Client *http.Client
}

// Prober sends and counts. It implements http.Handler: that is the subscriber.
type Prober struct {
	targets []Target
	options Options

	mu      sync.Mutex
	step    string
	steps   []string
	events  []*Event
	changed chan struct{} // closed and replaced when anything arrives or is accepted
}

// Event is one event, and what became of it.
type Event struct {
	Number      int
	ID          string
	Application string
	// Step is what was going on when it was first sent.
	Step string
	// Sent is when it was first sent, Accepted when a 200 came, zero if none did.
	Sent, Accepted time.Time
	// Attempts is how often it was sent.
	Attempts int
	// Arrived are the times at which the subscriber got it.
	Arrived []time.Time
	// LastRefusal is the last answer that was no 200.
	LastRefusal string

	givenUp bool
}

// Delay is the time from the acceptance of an event until it arrived; 0 if it
// arrived before its client was told.
func (e *Event) Delay() time.Duration {
	if len(e.Arrived) == 0 || e.Accepted.IsZero() {
		return 0
	}
	return max(0, e.Arrived[0].Sub(e.Accepted))
}

// String spells an event for people.
func (e *Event) String() string {
	return fmt.Sprintf("event %d (%s) of %s, sent during %q at %s, %d attempts", e.Number, e.ID, e.Application, e.Step, e.Sent.Format("15:04:05.000"), e.Attempts)
}

// New makes a Prober.
func New(targets []Target, o Options) *Prober {
	if o.Interval == 0 {
		o.Interval = 10 * time.Millisecond
	}
	if o.LateAfter == 0 {
		o.LateAfter = 5 * time.Second
	}
	if o.GiveUpAfter == 0 {
		o.GiveUpAfter = 5 * time.Minute
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	}
	return &Prober{targets: targets, options: o, step: "start", steps: []string{"start"}, changed: make(chan struct{})}
}

// Step says what is going on from now on.
func (p *Prober) Step(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = name
	p.steps = append(p.steps, name)
}

// Run sends until ctx ends, and returns when every event that was begun is
// accepted or given up. It may be called again after that.
func (p *Prober) Run(ctx context.Context) {
	tick := time.NewTicker(p.options.Interval)
	defer tick.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	workers := make(chan struct{}, p.options.MaxPending)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		release := func() {}
		if p.options.MaxPending > 0 {
			select {
			case <-ctx.Done():
				return
			case workers <- struct{}{}:
			}
			release = func() { <-workers }
		}
		target := p.targets[n%len(p.targets)]
		e := p.begin(target)
		// Who has begun to send an event sends it to its end.
		all.Go(func() {
			defer release()
			p.post(context.WithoutCancel(ctx), target, e)
		})
	}
}

func (p *Prober) begin(target Target) *Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &Event{Number: len(p.events), ID: uuid.NewString(), Application: target.Application, Step: p.step, Sent: time.Now()}
	p.events = append(p.events, e)
	return e
}

// post repeats an event until it is accepted.
func (p *Prober) post(ctx context.Context, target Target, e *Event) {
	ctx, cancel := context.WithTimeout(ctx, p.options.GiveUpAfter)
	defer cancel()
	body := fmt.Sprintf(`{"event-type":%q,"event-type-version":"v1","event-id":%q,"event-time":%q,"data":{"number":%d}}`,
		target.EventType, e.ID, e.Sent.UTC().Format(time.RFC3339Nano), e.Number)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		refusal, wait := p.once(ctx, target.URL, body)
		p.tell(func() {
			e.Attempts++
			if refusal == "" {
				e.Accepted = time.Now()
			} else {
				e.LastRefusal = refusal
			}
		})
		if refusal == "" {
			return
		}
		timer := time.NewTimer(max(pause, wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			p.tell(func() { e.givenUp = true })
			return
		case <-timer.C:
		}
	}
}

// once sends an event, and returns why it was not accepted, and for how long the
// service asked to wait.
func (p *Prober) once(ctx context.Context, url, body string) (refusal string, wait time.Duration) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err.Error(), 0
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.options.Client.Do(req)
	if err != nil {
		return err.Error(), 0
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	switch {
	case resp.StatusCode != http.StatusOK:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return fmt.Sprintf("%s: %s", resp.Status, raw), time.Duration(seconds) * time.Second
	case err != nil:
		return err.Error(), 0
	}
	return "", 0
}

// ServeHTTP is the subscriber: of the Event Bus and of the mesh alike it gets the
// data of an event.
func (p *Prober) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var data struct {
		Number *int `json:"number"`
	}
	err := json.NewDecoder(r.Body).Decode(&data)
	if err == nil && data.Number == nil {
		err = errors.New("no number")
	}
	known := false
	if err == nil {
		p.tell(func() {
			if known = *data.Number >= 0 && *data.Number < len(p.events); known {
				e := p.events[*data.Number]
				e.Arrived = append(e.Arrived, time.Now())
			}
		})
	}
	if err != nil || !known {
		http.Error(w, fmt.Sprintf("not one of ours: %v", err), http.StatusBadRequest)
	}
}

func (p *Prober) tell(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Await returns when every accepted event has arrived, or ctx ends.
func (p *Prober) Await(ctx context.Context) error {
	stable := p.stable(func(e *Event) bool { return e.Accepted.IsZero() && e.givenUp || len(e.Arrived) > 0 })
	return p.until(ctx, func() int {
		return stable(len(p.events), func(e *Event) bool { return !e.Accepted.IsZero() && len(e.Arrived) == 0 })
	},
		"%d accepted events have not arrived")
}

// AwaitAccepted returns when every event that was begun before is accepted or
// given up, and so many that were begun after it.
func (p *Prober) AwaitAccepted(ctx context.Context, more int) error {
	p.mu.Lock()
	want := len(p.events) + more
	p.mu.Unlock()
	done := func(e *Event) bool { return !e.Accepted.IsZero() || e.givenUp }
	stable := p.stable(done)
	return p.until(ctx, func() int {
		return max(0, want-len(p.events)) + stable(min(want, len(p.events)), func(e *Event) bool { return !done(e) })
	}, "%d events are not accepted")
}

// stable returns what counts events under the lock. It does not look again at the
// first ones, up to which nothing can change any more: it is asked whenever
// something changes, and events become many.
func (p *Prober) stable(final func(*Event) bool) func(end int, counts func(*Event) bool) int {
	from := 0
	return func(end int, counts func(*Event) bool) int {
		for from < end && final(p.events[from]) {
			from++
		}
		n := 0
		for _, e := range p.events[from:end] {
			if counts(e) {
				n++
			}
		}
		return n
	}
}

// until waits until nothing is left, which left counts under the lock.
func (p *Prober) until(ctx context.Context, left func() int, format string) error {
	for {
		p.mu.Lock()
		n, changed := left(), p.changed
		p.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf(format+": %w", n, ctx.Err())
		case <-changed:
		}
	}
}

// Report is what became of all events.
type Report struct {
	Sent, Accepted int
	// Repeated is the number of attempts beyond the first.
	Repeated int
	// Missing were accepted and did not arrive; Duplicates arrived more than once;
	// Late ones arrived later than they should; GivenUp were never accepted.
	Missing, Duplicates, Late, GivenUp []Event
	// LongestDelay is that of one accepted event.
	LongestDelay time.Duration
	// Steps are in the order in which they were.
	Steps []StepReport
}

// StepReport is about the events that were sent during a step.
type StepReport struct {
	Step                                          string
	Accepted, Missing, Duplicates, Late, Repeated int
	LongestDelay                                  time.Duration
}

// Report says what became of all events until now.
func (p *Prober) Report() *Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &Report{}
	byStep := map[string]*StepReport{}
	for _, name := range p.steps {
		if byStep[name] == nil {
			byStep[name] = &StepReport{Step: name}
		}
	}
	for _, e := range p.events {
		s := byStep[e.Step]
		r.Sent++
		repeated := max(0, e.Attempts-1)
		r.Repeated += repeated
		s.Repeated += repeated
		if e.Accepted.IsZero() {
			r.GivenUp = append(r.GivenUp, e.copy())
			continue
		}
		r.Accepted++
		s.Accepted++
		delay := e.Delay()
		r.LongestDelay, s.LongestDelay = max(r.LongestDelay, delay), max(s.LongestDelay, delay)
		switch {
		case len(e.Arrived) == 0:
			r.Missing = append(r.Missing, e.copy())
			s.Missing++
		case delay > p.options.LateAfter:
			r.Late = append(r.Late, e.copy())
			s.Late++
		}
		if len(e.Arrived) > 1 {
			r.Duplicates = append(r.Duplicates, e.copy())
			s.Duplicates++
		}
	}
	seen := map[string]bool{}
	for _, name := range p.steps {
		if !seen[name] {
			r.Steps = append(r.Steps, *byStep[name])
		}
		seen[name] = true
	}
	return r
}

// LongestGap is the longest time between two events that were accepted one after the other.
func (p *Prober) LongestGap() time.Duration {
	longest, _ := p.GapBefore()
	return longest
}

// GapBefore is LongestGap, and the second of these events.
func (p *Prober) GapBefore() (longest time.Duration, until Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var accepted []*Event
	for _, e := range p.events {
		if !e.Accepted.IsZero() {
			accepted = append(accepted, e)
		}
	}
	slices.SortFunc(accepted, func(a, b *Event) int { return a.Accepted.Compare(b.Accepted) })
	for i := 1; i < len(accepted); i++ {
		if gap := accepted[i].Accepted.Sub(accepted[i-1].Accepted); gap > longest {
			longest, until = gap, accepted[i].copy()
		}
	}
	return longest, until
}

func (e *Event) copy() Event {
	c := *e
	c.Arrived = slices.Clone(e.Arrived)
	return c
}

// shown is how many events of a kind a report for people names.
const shown = 20

// String is the report for people.
func (r *Report) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d events sent, %d accepted, %d missing, %d twice, %d late, %d given up; %d repetitions; longest delay %s\n",
		r.Sent, r.Accepted, len(r.Missing), len(r.Duplicates), len(r.Late), len(r.GivenUp), r.Repeated, r.LongestDelay.Round(time.Millisecond))
	for _, s := range r.Steps {
		fmt.Fprintf(&out, "  during %q: %d accepted, %d missing, %d twice, %d late; %d repetitions; longest delay %s\n",
			s.Step, s.Accepted, s.Missing, s.Duplicates, s.Late, s.Repeated, s.LongestDelay.Round(time.Millisecond))
	}
	for _, kind := range []struct {
		name   string
		events []Event
	}{{"missing", r.Missing}, {"twice", r.Duplicates}, {"late", r.Late}, {"given up", r.GivenUp}} {
		for i := range kind.events[:min(len(kind.events), shown)] {
			fmt.Fprintf(&out, "%s: %s\n", kind.name, &kind.events[i])
		}
		if more := len(kind.events) - shown; more > 0 {
			fmt.Fprintf(&out, "%s: and %d more\n", kind.name, more)
		}
	}
	return out.String()
}
