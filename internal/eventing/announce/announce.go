// Package announce tells people about deliveries to sinks with Events of Kubernetes: that a sink
// takes nothing, takes events again, blocks those after it, or that an event was given up. It tells
// each change once, and not more often than the API server and people can bear.
package announce

import (
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
)

const (
	// every is how often an Event of one reason tells of one Subscription, at most.
	every = time.Minute
	// For all Subscriptions together, Events are written at most so often in a second, after so
	// many at once.
	pace, burst = 1, 25
	// The API server takes a message of at most longestNote bytes; of a sink, a message has at most
	// longestSink.
	longestNote, longestSink = 1024, 200
)

// Announcer writes Events about the delivery to sinks. Its methods can be called at the same time.
type Announcer struct {
	recorder events.EventRecorder
	limit    flowcontrol.PassiveRateLimiter

	mu sync.Mutex
	of map[types.NamespacedName]*announced
}

// announced is what Events have said of a Subscription.
type announced struct {
	failing  bool
	blocking string
	// letter and posted are health.Health.Letter and Posted of which an Event told last.
	letter, posted time.Time
	// at is when an Event of a reason told of it last.
	at map[string]time.Time
}

// New returns one that has told nothing.
func New(recorder events.EventRecorder) *Announcer {
	return &Announcer{
		recorder: recorder, limit: flowcontrol.NewTokenBucketPassiveRateLimiter(pace, burst),
		of: map[types.NamespacedName]*announced{},
	}
}

// Forget forgets a Subscription that does not exist any more.
func (a *Announcer) Forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, key)
}

// Tell tells what is new of the sink of a Subscription. again, if not 0, is when to call it
// again: something could not be told yet. failing says what the status had before.
func (a *Announcer) Tell(s *eventingv1alpha2.Subscription, h health.Health, sink delivery.Sink, failing bool, now time.Time) (again time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := client.ObjectKeyFromObject(s)
	is := a.of[key]
	if is == nil {
		// What a former process has told is not told again.
		is = &announced{failing: failing, at: map[string]time.Time{}}
		a.of[key] = is
	}
	shown := shownSink(s.Spec.Sink)
	look := fmt.Sprintf("Next: kubectl -n %s describe service %s", s.Namespace, sink.Service)
	tell := func(kind, reason, format string, args ...any) bool {
		left := every - now.Sub(is.at[reason])
		if left <= 0 && !a.limit.TryAccept() {
			left = wait.Jitter(every/2, 2) // or all would come again together
		}
		if left > 0 {
			if again == 0 || left < again {
				again = left
			}
			return false
		}
		is.at[reason] = now
		a.recorder.Eventf(&stored.Subscription{Subscription: *s}, nil, kind, reason, "Deliver", "%s", cut(fmt.Sprintf(format, args...), longestNote))
		return true
	}
	switch {
	case h.Problem != "" && !is.failing:
		is.failing = tell(corev1.EventTypeWarning, eventingv1alpha2.EventFailing, "The sink %s takes no events, or not all of them: %s. %s", shown, h.Problem, look)
	case h.Problem == "" && h.Known && is.failing:
		is.failing = !tell(corev1.EventTypeNormal, eventingv1alpha2.EventRecovered, "The sink %s takes events again. Next, to see what waits: kubectl -n %s get subscriptions.eventing.kyma-project.io %s", shown, s.Namespace, s.Name)
	}
	switch b := h.Blocking; {
	case b.ID == "":
		is.blocking = ""
	case b.ID != is.blocking && tell(corev1.EventTypeWarning, eventingv1alpha2.EventBlocked, "Event %q is refused by the sink %s since %s (%s), and all later ones wait for it, because config.maxInFlightMessages is 1. %s", b.ID, shown, b.Since.UTC().Format(time.RFC3339), h.Problem, look):
		is.blocking = b.ID
	}
	if h.Letter.After(is.letter) && tell(corev1.EventTypeWarning, eventingv1alpha2.EventGivenUp, "An event was given up at %s, because the sink %s did not take it for too long (%s): it is a dead letter now. Next: kubectl eventing dead-letters list -n %s", h.Letter.UTC().Format(time.RFC3339), shown, h.Problem, s.Namespace) {
		is.letter = h.Letter
	}
	if h.Posted.After(is.posted) && tell(corev1.EventTypeWarning, eventingv1alpha2.EventGivenUp, "An event was given up at %s, because the sink %s did not take it (%s): the dead letter sink has it. %s", h.Posted.UTC().Format(time.RFC3339), shown, h.Problem, look) {
		is.posted = h.Posted
	}
	return again
}

// shownSink is the URL of a sink without what nobody else is to see.
func shownSink(sink string) string {
	shown := redact.URL(sink)
	if len(shown) > longestSink {
		return cut(shown, longestSink) + redact.Hidden
	}
	return shown
}

// cut is a text with at most so many bytes.
func cut(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
