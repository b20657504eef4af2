//go:build slow

package eventing_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
)

// TestControllersKilledOften kills controllers 30 times, TestControllersStopped stops them for a
// minute: the others go on, and what a stopped one had comes once more at most.
func TestControllersKilledOften(t *testing.T) { controllersKilled(t, 30, 0, killPause) }

func TestControllersStopped(t *testing.T) { controllersKilled(t, 3, time.Minute, 3*time.Second) }

// TestStatusOfAll: the status says what became of an event at whatever process it was.
func TestStatusOfAll(t *testing.T) {
	r := newRig(t, true)
	r.fleet(3)
	r.subscribe("orders", "a.b", "")
	r.await("orders", "ready", ready)
	time.Sleep(3 * time.Second)
	for round := range 2 { // any of the three has the one event
		r.sinks.Answer("orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		r.publish("a.b", fmt.Sprintf("e-%d", round))
		r.await("orders", "its sink is known to fail", func(s *eventingv1alpha2.Subscription) string {
			return not(delivering(s), "it delivers")
		})
		r.sinks.Answer("orders", nil)
		r.await("orders", "its sink is known to work", func(s *eventingv1alpha2.Subscription) string {
			return not(!delivering(s), "it does not deliver")
		})
	}
}

func not(is bool, what string) string {
	if is {
		return what
	}
	return ""
}

func delivering(s *eventingv1alpha2.Subscription) bool {
	for _, c := range s.Status.Conditions {
		if c.Type == eventingv1alpha2.ConditionDelivering {
			return c.Status == "True"
		}
	}
	return false
}
