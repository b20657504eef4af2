package takeover_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/takeover"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var errKilled = errors.New("the process was killed")

// wire is the way of one process to the API server. It ends at a write: before the request is sent,
// or after it was answered.
type wire struct {
	inner  http.RoundTripper
	at     int64
	after  bool
	kill   context.CancelFunc
	writes atomic.Int64
	dead   atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.dead.Load() {
		return nil, errKilled
	}
	// Reviews and dry runs change nothing.
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "accessreviews") || strings.Contains(r.URL.RawQuery, "dryRun") || w.writes.Add(1) != w.at {
		return w.inner.RoundTrip(r)
	}
	defer w.kill()
	if w.after {
		if res, err := w.inner.RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}
	w.dead.Store(true)
	return nil, errKilled
}

// monitor asks the servers of NATS.
func (s *site) monitor(ctx context.Context, namespace, pod string, _ int, path string) ([]byte, error) {
	base, err := s.pods.NATS.Monitor(namespace, pod)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	return io.ReadAll(res.Body)
}

// process makes one step, as a process of its own that is killed at a write; 0 is never.
func (s *site) process(to takeover.Direction, at int64, after bool) (report *migration.Report, killed bool, writes int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 11*time.Minute)
	defer cancel()
	w := &wire{at: at, after: after, kill: cancel}
	config := cluster.Config()
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		w.inner = inner
		return w
	})
	e, err := engine.New(config, engine.Options{
		Names: migration.Names{Program: "eventing-take-over", Domain: "take-over.eventing.kyma-project.io"}, LeaseDuration: time.Second, Timeout: 10 * time.Minute,
	})
	s.check(err)
	ended := make(chan *migration.Report, 1)
	go func() { ended <- e.Run(ctx, takeover.New(takeover.Options{To: to, Get: s.monitor})) }()
	select {
	case report = <-ended:
	case <-ctx.Done(): // nothing of it reaches the API server any more
	}
	return report, w.dead.Load(), w.writes.Load()
}

// unkilled is a stride for a way on which nothing is killed.
const unkilled = 0

// way goes one way, and is killed at each write of each step: of one after the other process at the
// first, the second, and so on, until the step is done. It returns how often.
func (s *site) way(to takeover.Direction, stride int64) (kills int) {
	s.t.Helper()
	at := int64(1)
	if stride == unkilled {
		at = 0
	}
	for deadline := time.Now().Add(30 * time.Minute); time.Now().Before(deadline); {
		report, killed, _ := s.process(to, at, at%2 == 0)
		switch {
		case killed || report == nil:
			kills++
			at += stride
		case report.Result == migration.NothingToDo:
			return kills
		case report.Result == migration.Succeeded:
			if at > 0 {
				at = 1 + int64(kills)%stride // the next step is killed from its first writes on
			}
		case report.Result == migration.DeferredResult:
			time.Sleep(500 * time.Millisecond)
		default:
			s.t.Fatalf("%s: %s: %s: %v", to, report.Result, report.Message, report.Findings)
		}
	}
	s.t.Fatalf("%s does not end", to)
	return 0
}

// TestKilled goes there and back under load, and each process is killed: at each write with make
// test-slow, at some of them otherwise.
func TestKilled(t *testing.T) {
	const n = 2
	stride := int64(20)
	if all {
		stride = 1
	}
	s := newSite(t, n)
	l := s.publish(n, 2, 50*time.Millisecond)
	for _, to := range []takeover.Direction{takeover.Over, takeover.Back} {
		began := time.Now()
		kills := s.way(to, stride)
		t.Logf("%s: killed %d times, %s", to, kills, time.Since(began).Round(time.Second))
		if kills < 4 {
			t.Errorf("%s was killed %d times", to, kills)
		}
	}
	if accepted, twice := l.end(); twice*1000 > accepted {
		t.Errorf("%d accepted, %d twice", accepted, twice)
	}
	s.alone()
}

// TestTurnsRound: a way is left after some of its steps, in the direction of the other one. A
// Subscription is deleted there, for which nobody may be there.
func TestTurnsRound(t *testing.T) {
	if !all {
		t.Skip("make test-slow has it")
	}
	const n = 2
	s := newSite(t, n)
	l := s.publish(n, 2, 50*time.Millisecond)
	s.service("late")
	for _, steps := range []int{2, 3, 5, 7, 9} {
		s.await(time.Minute, "Subscriptions can be created", func(ctx context.Context) error { // a moment after the policy is gone
			_, err := s.client.Resource(subscriptions).Namespace(namespace).Create(ctx, object(t, s.subscription("late", namespace)), metav1.CreateOptions{})
			return err
		})
		s.await(time.Minute, "it is ready", func(ctx context.Context) error { return s.allReady(ctx, n+1) })
		for done := 0; done < steps; {
			switch report, _, _ := s.process(takeover.Over, 0, false); report.Result {
			case migration.Succeeded:
				done++
			case migration.NothingToDo:
				done = steps
			case migration.DeferredResult:
				time.Sleep(300 * time.Millisecond)
			default:
				t.Fatalf("%s: %s", report.Result, report.Message)
			}
		}
		s.check(s.client.Resource(subscriptions).Namespace(namespace).Delete(t.Context(), "late", metav1.DeleteOptions{}))
		s.way(takeover.Back, unkilled)
		s.await(time.Minute, "it is gone", func(ctx context.Context) error { return s.allReady(ctx, n) })
		t.Logf("back after %d steps", steps)
	}
	if accepted, twice := l.end(); twice*1000 > accepted {
		t.Errorf("%d accepted, %d twice", accepted, twice)
	}
	s.alone()
}
