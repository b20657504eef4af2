package eventservice

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Load is what clients saw.
type Load struct {
	// Statuses counts answers; 0 are requests without one.
	Statuses map[int]int
	// Unhelpful counts 503s without Retry-After.
	Unhelpful int
	// Latencies of all answers, sorted.
	Latencies []time.Duration
	Took      time.Duration
}

// Answered is the number of answers with a status.
func (l *Load) Answered(status int) int { return l.Statuses[status] }

// PerSecond is the number of accepted events in a second.
func (l *Load) PerSecond() float64 { return float64(l.Statuses[http.StatusOK]) / l.Took.Seconds() }

// Percentile returns the latency that so many percent do not exceed.
func (l *Load) Percentile(percent float64) time.Duration {
	if len(l.Latencies) == 0 {
		return 0
	}
	return l.Latencies[min(len(l.Latencies)-1, int(float64(len(l.Latencies))*percent/100))]
}

// NewClient returns a client that keeps n connections.
func NewClient(n int) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConns: n, MaxIdleConnsPerHost: n, DisableCompression: true}}
}

// Event makes the body of an event for v1, of at least size bytes.
func Event(size int) string {
	body := `{"event-type":"order.created","event-type-version":"v1","event-id":"` + uuid.NewString() +
		`","event-time":"2020-03-01T12:00:00Z","data":{"order":1,"padding":"`
	return body + strings.Repeat("x", max(0, size-len(body)-3)) + `"}}`
}

type recorder struct {
	mu sync.Mutex
	Load
}

func (r *recorder) send(ctx context.Context, client *http.Client, url, body string) {
	began := time.Now()
	status, helpful := 0, true
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
		var resp *http.Response
		if resp, err = client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			status = resp.StatusCode
			helpful = status != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != ""
		}
	}
	took := time.Since(began)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Statuses[status]++
	if !helpful {
		r.Unhelpful++
	}
	if status != 0 {
		r.Latencies = append(r.Latencies, took)
	}
}

func (r *recorder) done(began time.Time) *Load {
	r.Took = time.Since(began)
	slices.Sort(r.Latencies)
	return &r.Load
}

// Closed sends from n clients, each as soon as it has its answer.
func Closed(ctx context.Context, client *http.Client, url, body string, n int, duration time.Duration) *Load {
	r := &recorder{Load: Load{Statuses: map[int]int{}}}
	began := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil && time.Since(began) < duration {
				r.send(ctx, client, url, body)
			}
		})
	}
	all.Wait()
	return r.done(began)
}

// Open sends so many a second, whatever becomes of those before, and waits for all
// answers. What it cannot send in time it sends late.
func Open(ctx context.Context, client *http.Client, url, body string, perSecond int, duration time.Duration) (*Load, error) {
	r := &recorder{Load: Load{Statuses: map[int]int{}}}
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	for sent := 0; time.Since(began) < duration; {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the load was cut off: %w", ctx.Err())
		case <-tick.C:
		}
		for due := int(time.Since(began).Seconds() * float64(perSecond)); sent < due; sent++ {
			all.Go(func() { r.send(ctx, client, url, body) })
		}
	}
	all.Wait()
	return r.done(began), nil
}
