package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fleet"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
)

var (
	began  = time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	orders = types.NamespacedName{Namespace: "shop", Name: "orders"}
)

func ago(d time.Duration) *metav1.Time {
	at := metav1.NewTime(began.Add(-d))
	return &at
}

// TestNumbers: what is on its way does not wait; what was refused, or waits for long, does. What is
// not known is not said to be 0.
func TestNumbers(t *testing.T) {
	type status = eventingv1alpha2.DeliveryStatus
	for _, tc := range []struct {
		reason  string
		found   found
		known   fleet.Numbers
		written *status
		since   time.Duration // before now, since when there is something
		want    status
	}{
		{"nothing waits", found{}, fleet.Numbers{}, &status{Backlog: 7, Oldest: ago(time.Hour)}, 0, status{}},
		{"events are on their way", found{unsent: 90, unanswered: 10}, fleet.Numbers{Complete: true, Oldest: began.Add(-time.Second)}, nil, time.Hour, status{}},
		{
			"some were refused a moment ago", found{unsent: 90, unanswered: 10}, fleet.Numbers{Complete: true, Oldest: began.Add(-time.Second), Repeating: 3}, nil, time.Second,
			status{Backlog: 100, Oldest: ago(time.Second), Repeating: 3},
		},
		{
			"the oldest waits for long", found{unsent: 90, unanswered: 10}, fleet.Numbers{Complete: true, Oldest: began.Add(-waitsLong)}, nil, time.Hour,
			status{Backlog: 100, Oldest: ago(waitsLong)},
		},
		{"it is not known how long they wait, and it is not long", found{unsent: 90}, fleet.Numbers{}, nil, time.Second, status{}},
		{"it is not known how long they wait, and it is long", found{unsent: 90}, fleet.Numbers{}, nil, time.Minute, status{Backlog: 90}},
		{
			"a new process, which has seen one of those that wait", found{unanswered: 10, redelivered: 8}, fleet.Numbers{Oldest: began.Add(-time.Minute), Repeating: 1}, &status{Oldest: ago(time.Hour)}, time.Second,
			status{Backlog: 10, Repeating: 8, Oldest: ago(time.Hour)},
		},
		{
			"it has seen all", found{unanswered: 10, redelivered: 8}, fleet.Numbers{Complete: true, Oldest: began.Add(-time.Minute), Repeating: 7}, &status{Oldest: ago(time.Hour)}, time.Second,
			status{Backlog: 10, Repeating: 7, Oldest: ago(time.Minute)},
		},
		{
			"dead letters", found{deadLetters: 4}, fleet.Numbers{}, nil, 0,
			status{DeadLetters: 4},
		},
	} {
		x := &detail{waiting: tc.found.unsent + uint64(tc.found.unanswered), written: tc.written, since: began.Add(-tc.since)} //nolint:gosec // small
		tc.found.numbers = tc.known
		if diff := cmp.Diff(&tc.want, x.numbers(tc.found, began)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestAge: a backlog that moves is as old as the oldest event that a pod has. One that nobody has
// gets older until an event is taken.
func TestAge(t *testing.T) {
	key := types.NamespacedName{Namespace: "shop", Name: "orders"}
	d := &details{of: map[types.NamespacedName]*detail{}}
	d.status(key, &eventingv1alpha2.DeliveryStatus{Oldest: ago(time.Hour)}, true)
	known := func(of time.Duration, complete bool) fleet.Numbers {
		return fleet.Numbers{Oldest: began.Add(of), Complete: complete}
	}
	for _, tc := range []struct {
		reason string
		at     time.Duration
		found  found
		want   time.Duration
	}{
		{"nothing waits, whatever the status has", 0, found{taken: 7}, 0},
		{"a process that has just begun believes the status", time.Minute, found{unsent: 2, taken: 7, numbers: known(0, false)}, time.Hour + time.Minute},
		{"it has seen all", 2 * time.Minute, found{unanswered: 2, taken: 7, numbers: known(time.Minute, true)}, time.Minute},
		{"nobody has them any more", 3 * time.Minute, found{unsent: 2, taken: 7, numbers: fleet.Numbers{Complete: true}}, 3 * time.Minute},
		{"more come, and nobody has them", 4 * time.Minute, found{unsent: 9, taken: 7, numbers: fleet.Numbers{Complete: true}}, 4 * time.Minute},
		{"one was taken", 5 * time.Minute, found{unsent: 8, taken: 8, numbers: fleet.Numbers{Complete: true}}, 0},
		{"nobody takes another", 6 * time.Minute, found{unsent: 8, taken: 8, numbers: fleet.Numbers{Complete: true}}, time.Minute},
		{"the clocks of two machines differ", 7 * time.Minute, found{unsent: 8, taken: 8, numbers: known(time.Hour, true)}, 0},
	} {
		if _, age := d.add(key, tc.found, began.Add(tc.at)); age != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, age, tc.want)
		}
	}
}

func TestWorth(t *testing.T) {
	type status = eventingv1alpha2.DeliveryStatus
	for _, tc := range []struct {
		reason  string
		has, is status
		want    bool
	}{
		{"the same", status{Backlog: 100}, status{Backlog: 100}, false},
		{"a fifth more", status{Backlog: 100}, status{Backlog: 120}, false},
		{"more than a fifth", status{Backlog: 100}, status{Backlog: 121}, true},
		{"more than a fifth less", status{Backlog: 100}, status{Backlog: 79}, true},
		{"the first", status{}, status{Backlog: 1}, true},
		{"none any more", status{Backlog: 1}, status{}, true},
		{"one is repeated", status{Backlog: 100}, status{Backlog: 100, Repeating: 1}, true},
		{"the first dead letter", status{}, status{DeadLetters: 1}, true},
		{"the oldest is known", status{}, status{Oldest: ago(time.Hour)}, true},
		{"the oldest is a little younger", status{Oldest: ago(70 * time.Minute)}, status{Oldest: ago(time.Hour)}, false},
		{"the oldest is much younger", status{Oldest: ago(2 * time.Hour)}, status{Oldest: ago(time.Hour)}, true},
		{"the oldest is much younger, and both are new", status{Oldest: ago(30 * time.Second)}, status{Oldest: ago(time.Second)}, false},
	} {
		if got := worth(tc.has, tc.is, began); got != tc.want {
			t.Errorf("%s: %t", tc.reason, got)
		}
	}
}

// play looks at Subscriptions every 4 seconds and writes those whose turn it is, as the inspector
// and the reconciler do. It returns when each was written.
func play(d *details, keys []types.NamespacedName, long time.Duration, find func(key int, at time.Duration) found, answer func(key int, at time.Duration) bool) map[types.NamespacedName][]time.Duration {
	writes := map[types.NamespacedName][]time.Duration{}
	written := map[types.NamespacedName]*eventingv1alpha2.DeliveryStatus{}
	for _, key := range keys {
		d.status(key, nil, true)
	}
	for at := time.Duration(0); at < long; at += inspectEvery {
		now := began.Add(at)
		for i, key := range keys {
			d.add(key, find(i, at), now)
			if answer(i, at) {
				d.mayWrite(key, true, true)
			}
		}
		for _, key := range d.next(now) {
			want, _ := d.status(key, written[key], true)
			if !d.mayWrite(key, false, false) {
				panic("it is not its turn")
			}
			d.wrote(key, want, time.Time{}, now, true)
			written[key], writes[key] = want, append(writes[key], at)
		}
	}
	return writes
}

// TestAThousandSinksThatFail: all sinks fail at the same time, and their backlogs grow, each
// answer is another one, or both. The statuses of all together are written at most so often, and
// each has its turn.
func TestAThousandSinksThatFail(t *testing.T) {
	const long = 20 * time.Minute
	grows := func(_ int, at time.Duration) found {
		return found{unsent: uint64(at.Seconds()*at.Seconds()) + 1, numbers: fleet.Numbers{Complete: true, Oldest: began, Repeating: 1}} //nolint:gosec // small
	}
	stays := func(int, time.Duration) found {
		return found{numbers: fleet.Numbers{}}
	}
	always, never := func(int, time.Duration) bool { return true }, func(int, time.Duration) bool { return false }
	for _, tc := range []struct {
		reason string
		find   func(int, time.Duration) found
		answer func(int, time.Duration) bool
		every  time.Duration // at least between two writes of one
	}{
		{"backlogs grow", grows, never, numbersEvery},
		{"answers change", stays, always, answersEvery},
		{"both", grows, always, answersEvery},
	} {
		d := &details{of: map[types.NamespacedName]*detail{}}
		var keys []types.NamespacedName
		for i := range 1000 {
			keys = append(keys, types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(i)})
		}
		writes, all := play(d, keys, long, tc.find, tc.answer), 0
		for _, key := range keys {
			all += len(writes[key])
			if len(writes[key]) < 2 {
				t.Errorf("%s: %s was written %d times in %s", tc.reason, key, len(writes[key]), long)
			}
			for i := range writes[key][1:] {
				if between := writes[key][i+1] - writes[key][i]; between < tc.every {
					t.Errorf("%s: %s was written twice in %s", tc.reason, key, between)
				}
			}
		}
		if most := mostInARound * int(long/roundEvery); all > most || all < most*9/10 {
			t.Errorf("%s: %d writes in %s, want %d at most and nearly as many", tc.reason, all, long, most)
		}
	}
}

// TestOneSinkThatFails: the numbers of one Subscription are there within seconds, are not written
// for each event, and are 0 within seconds when the sink works again.
func TestOneSinkThatFails(t *testing.T) {
	d := &details{of: map[types.NamespacedName]*detail{}}
	find := func(_ int, at time.Duration) found {
		var f found
		if at >= time.Minute && at < 11*time.Minute { // it fails for ten minutes, with ten events a second
			f.unsent = uint64(10 * (at - time.Minute + time.Second).Seconds())
		}
		f.numbers = fleet.Numbers{Complete: true, Oldest: began.Add(time.Minute), Repeating: 1}
		return f
	}
	writes := play(d, []types.NamespacedName{orders}, 15*time.Minute, find, func(int, time.Duration) bool { return false })[orders]
	if len(writes) < 5 || len(writes) > 16 || writes[0] != 0 {
		t.Fatalf("written at %v", writes)
	}
	if first, last := writes[1], writes[len(writes)-1]; first < time.Minute || first > time.Minute+roundEvery || last < 11*time.Minute || last > 11*time.Minute+numbersEvery+roundEvery {
		t.Errorf("written at %v", writes)
	}
	if is := d.of[orders].written; *is != (eventingv1alpha2.DeliveryStatus{}) {
		t.Errorf("at the end it says %+v", is)
	}
}

// TestDetailsWithoutALook: before a look, what a status has stays; where nobody can look, there is
// nothing.
func TestDetailsWithoutALook(t *testing.T) {
	d := &details{of: map[types.NamespacedName]*detail{}}
	has := &eventingv1alpha2.DeliveryStatus{Backlog: 7}
	if is, waits := d.status(orders, has, true); is != has || !waits {
		t.Errorf("before a look: %+v, %t", is, waits)
	}
	d.keeps(orders, true)
	if atOnce, _ := d.add(orders, found{unanswered: 1, numbers: fleet.Numbers{Repeating: 1}}, began); atOnce {
		t.Error("an event waits, and the status is written at once")
	}
	if is, waits := d.status(orders, has, true); is.Backlog != 1 || !waits {
		t.Errorf("after a look: %+v, %t", is, waits)
	}
	if atOnce, _ := d.add(orders, found{}, began); !atOnce {
		t.Error("nothing waits, and the status says on that the sink takes nothing")
	}
	if is, waits := d.status(orders, has, false); is != nil || waits {
		t.Errorf("on the mesh: %+v, %t", is, waits)
	}
	if d.add(types.NamespacedName{Name: "unknown"}, found{}, began); len(d.of) != 1 {
		t.Error("a Subscription that was not reconciled is known")
	}
	d.forget(orders)
	if len(d.of) > 0 {
		t.Error("a Subscription that is gone is known")
	}
}

// TestNextTryIsWritten: a status that names the time of the next try is written again after it.
func TestNextTryIsWritten(t *testing.T) {
	d := &details{of: map[types.NamespacedName]*detail{}}
	d.status(orders, nil, true)
	d.wrote(orders, &eventingv1alpha2.DeliveryStatus{}, began.Add(5*time.Minute), began, true)
	if got := d.next(began.Add(5 * time.Minute)); len(got) > 0 {
		t.Errorf("before the next try: %v", got)
	}
	if got := d.next(began.Add(5*time.Minute + roundEvery)); len(got) != 1 {
		t.Errorf("after the next try: %v", got)
	}
}

// said is the condition about the sink.
func said(s eventingv1alpha2.SubscriptionStatus) eventingv1alpha2.Condition {
	for _, c := range s.Conditions {
		if c.Type == eventingv1alpha2.ConditionDelivering {
			return c
		}
	}
	return eventingv1alpha2.Condition{}
}

// TestSinkDelivering: the condition has the last answer, since when, and the next try; a status
// that differs in no more than that can wait.
func TestSinkDelivering(t *testing.T) {
	failing := health.Health{Known: true, Problem: "the sink answers 503", Since: began.Add(-time.Hour), Next: began.Add(5 * time.Minute)}
	of := func(s *eventingv1alpha2.Subscription, h health.Health, now time.Time) eventingv1alpha2.SubscriptionStatus {
		f := findings{
			known: true, serving: backend.Backends{Serving: backend.Set{operatorv1alpha1.NATS}}, ready: map[operatorv1alpha1.BackendType]bool{operatorv1alpha1.NATS: true},
			health: h, service: true, sink: delivery.Sink{Namespace: "shop", Service: "orders"}, waits: true,
		}
		return statusOf(s, f, now)
	}
	s := subscription(nil)
	s.Status = of(s, failing, began)
	const want = "the sink answers 503; deliveries fail since 2026-11-28T00:00:00Z. Events wait, and are sent again from 2026-11-28T01:05:00Z on"
	if got := said(s.Status).Message; got != want {
		t.Errorf("it says %q", got)
	}
	for _, tc := range []struct {
		reason                string
		change                func(*health.Health)
		says                  string
		only, message, answer bool
	}{
		{"the same", func(*health.Health) {}, want, true, false, false},
		{
			"it is sent again soon", func(h *health.Health) { h.Next = began.Add(time.Second) },
			"the sink answers 503; deliveries fail since 2026-11-28T00:00:00Z. Events wait, and are sent again within 30 seconds", true, true, false,
		},
		{
			"another answer", func(h *health.Health) { h.Problem = "the sink does not answer in time" },
			"the sink does not answer in time; deliveries fail since 2026-11-28T00:00:00Z. Events wait, and are sent again from 2026-11-28T01:05:00Z on", true, true, true,
		},
		{
			"one event stops the others", func(h *health.Health) { h.Blocking = health.Blocking{ID: "7", Since: began} },
			`the sink answers 503; deliveries fail since 2026-11-28T00:00:00Z. Event "7" is refused since 2026-11-28T01:00:00Z, and all later ones wait for it; it is sent again from 2026-11-28T01:05:00Z on`, true, true, false,
		},
		{"it works", func(h *health.Health) { *h = health.Health{Known: true} }, "", false, true, true},
		{"a new process has seen nothing yet", func(h *health.Health) { *h = health.Health{} }, want, true, false, false},
		{
			"a new process has seen the first answer", func(h *health.Health) { h.Since = began.Add(time.Minute) },
			"the sink answers 503; deliveries fail since 2026-11-28T01:00:00Z. Events wait, and are sent again from 2026-11-28T01:05:00Z on", true, true, false,
		},
	} {
		h := failing
		tc.change(&h)
		got := of(s, h, began)
		only, message, answer := onlyDetails(s.Status, got)
		if says := said(got).Message; says != tc.says || only != tc.only || message != tc.message || answer != tc.answer {
			t.Errorf("%s: only details %t, another message %t, another answer %t: %s", tc.reason, only, message, answer, says)
		}
	}
}

// TestWhatIsKept: a process that has not delivered anything yet says on what the former one has
// seen, as long as that can be true.
func TestWhatIsKept(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(*findings, *eventingv1alpha2.Subscription)
		want   bool
	}{
		{"events wait", func(*findings, *eventingv1alpha2.Subscription) {}, true},
		{"no event waits", func(f *findings, _ *eventingv1alpha2.Subscription) { f.waits = false }, false},
		{"it has seen an answer", func(f *findings, _ *eventingv1alpha2.Subscription) { f.health.Known = true }, false},
		{"another sink", func(_ *findings, s *eventingv1alpha2.Subscription) { s.Generation++ }, false},
		{"the sink works", func(_ *findings, s *eventingv1alpha2.Subscription) {
			s.Status.Conditions[0].Status = corev1.ConditionTrue
		}, false},
		{"its Service was missing, and is there", func(f *findings, s *eventingv1alpha2.Subscription) {
			s.Status.Conditions[0].Message = f.missing() + ". x"
		}, false},
		{"its Service is gone", func(f *findings, _ *eventingv1alpha2.Subscription) { f.service = false }, false},
		{"a new Subscription", func(_ *findings, s *eventingv1alpha2.Subscription) { s.Status.Conditions = nil }, false},
	} {
		s := subscription(nil)
		s.Status.Conditions = []eventingv1alpha2.Condition{{Type: eventingv1alpha2.ConditionDelivering, Status: corev1.ConditionFalse, Message: "the sink answers 503"}}
		s.Status.Backends = []eventingv1alpha2.BackendReadiness{{ObservedGeneration: s.Generation}}
		f := findings{service: true, waits: true, sink: delivery.Sink{Namespace: "shop", Service: "orders"}}
		tc.change(&f, s)
		if got := f.keeps(s); got != tc.want {
			t.Errorf("%s: kept is %t", tc.reason, got)
		}
	}
}
