package announce

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
)

var (
	began  = time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	orders = types.NamespacedName{Namespace: "shop", Name: "orders"}
)

func subscription() *eventingv1alpha2.Subscription {
	return &eventingv1alpha2.Subscription{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"},
		Spec:       eventingv1alpha2.SubscriptionSpec{Sink: "http://orders.shop.svc.cluster.local"},
	}
}

// clock is one that a test sets.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time                   { return c.now }
func (c *clock) Since(at time.Time) time.Duration { return c.now.Sub(at) }

// fake is one with a clock, and what it has told.
func fake() (a *Announcer, at *clock, told func() []string) {
	at = &clock{began}
	recorder := events.NewFakeRecorder(10_000)
	a = New(recorder)
	a.limit = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(pace, burst, at)
	return a, at, func() (all []string) {
		for {
			select {
			case e := <-recorder.Events:
				all = append(all, e)
			default:
				return all
			}
		}
	}
}

// TestAnnounce: each change is told once, with the next command, and of one reason once a minute.
func TestAnnounce(t *testing.T) {
	a, now, told := fake()
	s := subscription()
	sink, err := delivery.ParseSink(s.Namespace, s.Spec.Sink)
	if err != nil {
		t.Fatal(err)
	}
	works, fails := health.Health{Known: true}, health.Health{Known: true, Problem: "the sink answers 503"}
	blocks, gaveUp, posted := fails, fails, fails
	blocks.Blocking = health.Blocking{ID: "7", Since: began}
	gaveUp.Letter, posted.Posted = began, began
	const warning, normal = "Warning ", "Normal "
	for i, step := range []struct {
		at    time.Duration
		is    health.Health
		want  []string
		again time.Duration
	}{
		{0, health.Health{}, nil, 0},
		{0, works, nil, 0},
		{time.Second, fails, []string{warning + eventingv1alpha2.EventFailing}, 0},
		{2 * time.Second, fails, nil, 0},
		{3 * time.Second, blocks, []string{warning + eventingv1alpha2.EventBlocked}, 0},
		{4 * time.Second, gaveUp, []string{warning + eventingv1alpha2.EventGivenUp}, 0},
		{5 * time.Second, gaveUp, nil, 0},
		{10 * time.Second, works, []string{normal + eventingv1alpha2.EventRecovered}, 0},
		{11 * time.Second, fails, nil, 50 * time.Second}, // it was told within the minute
		{12 * time.Second, blocks, nil, 49 * time.Second},
		{13 * time.Second, works, nil, 0}, // what was not told has no end
		{14 * time.Second, fails, nil, 47 * time.Second},
		{time.Minute + time.Second, fails, []string{warning + eventingv1alpha2.EventFailing}, 0},
		{time.Minute + 2*time.Second, health.Health{}, nil, 0}, // another sink, which is not known yet
		{time.Minute + 3*time.Second, works, nil, 7 * time.Second},
		{time.Minute + 10*time.Second, works, []string{normal + eventingv1alpha2.EventRecovered}, 0},
		{3 * time.Minute, posted, []string{warning + eventingv1alpha2.EventFailing, warning + eventingv1alpha2.EventGivenUp}, 0},
		{3*time.Minute + time.Second, posted, nil, 0},
	} {
		now.now = began.Add(step.at)
		again := a.Tell(s, step.is, sink, false, began.Add(step.at))
		var got []string
		for _, e := range told() {
			kind, rest, _ := strings.Cut(e, " ")
			reason, note, _ := strings.Cut(rest, " ")
			got = append(got, kind+" "+reason)
			if !strings.Contains(note, "Next") || !strings.Contains(note, "kubectl ") || !strings.Contains(note, "-n shop") || strings.Contains(note, "secret") {
				t.Errorf("step %d says %s", i, note)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" || again != step.again {
			t.Errorf("step %d, again after %s, want %s (-want +got):\n%s", i, again, step.again, diff)
		}
	}
	a.Forget(orders)
	if len(a.of) > 0 {
		t.Errorf("a Subscription that is gone is known: %v", a.of)
	}
}

// TestAnnounceAfterARestart: what the status has is not told again.
func TestAnnounceAfterARestart(t *testing.T) {
	a, _, told := fake()
	s := subscription()
	fails := health.Health{Known: true, Problem: "no"}
	a.Tell(s, health.Health{}, delivery.Sink{}, true, began)
	a.Tell(s, fails, delivery.Sink{}, true, began)
	if got := told(); len(got) > 0 {
		t.Errorf("told %q", got)
	}
	a.Tell(s, health.Health{Known: true}, delivery.Sink{}, true, began)
	if got := told(); len(got) != 1 {
		t.Errorf("the sink works again, and told is %q", got)
	}
}

// TestAThousandSinksAreNoFlood: when all sinks fail at once, some are told at once, the others
// later, one after the other.
func TestAThousandSinksAreNoFlood(t *testing.T) {
	a, now, told := fake()
	const all = 1000
	due, failing, n := map[int]time.Time{}, health.Health{Known: true, Problem: "no"}, 0
	for i := range all {
		due[i] = began
	}
	for at := began; len(due) > 0; at = at.Add(time.Second) {
		now.now = at
		for i, when := range due {
			if at.Before(when) {
				continue
			}
			s := subscription()
			s.Name = fmt.Sprint(i)
			if again := a.Tell(s, failing, delivery.Sink{}, false, at); again > 0 {
				due[i] = at.Add(again)
			} else {
				delete(due, i)
			}
		}
		n += len(told())
		if most := burst + int(at.Sub(began).Seconds())*pace; n > most {
			t.Fatalf("%d Events after %s, want at most %d", n, at.Sub(began), most)
		}
		if at.Sub(began) > time.Hour {
			t.Fatalf("%d of %d are told after an hour", n, all)
		}
	}
	if n != all {
		t.Errorf("%d Events, want %d", n, all)
	}
}

// TestLongNote: the API server takes 1,024 bytes; and what a URL hides is hidden.
func TestLongNote(t *testing.T) {
	a, _, told := fake()
	s := subscription()
	s.Spec.Sink = "http://orders.shop.svc.cluster.local/" + strings.Repeat("é", 1000) + "?token=secret"
	h := health.Health{Known: true, Problem: strings.Repeat("x", 2000), Blocking: health.Blocking{ID: strings.Repeat("\x01", 100), Since: began}}
	a.Tell(s, h, delivery.Sink{}, false, began)
	got := told()
	if len(got) != 2 {
		t.Fatalf("told %q", got)
	}
	for _, e := range got {
		if note := strings.SplitN(e, " ", 3)[2]; len(note) > longestNote || strings.Contains(e, "secret") {
			t.Errorf("%d bytes: %s", len(note), e)
		}
	}
}
