//go:build e2e && soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestSoakDeletedTriggers: somebody has Triggers of their own at the Broker, and deletes all of
// them at once. Knative then refuses each event. The Eventing says so, and what it says helps.
func TestSoakDeletedTriggers(t *testing.T) {
	s := startSwitching(t, light)
	s.moreVolumes(t, 2)
	s.to(t, "EventMesh")
	var all strings.Builder
	for i := range 20 {
		fmt.Fprintf(&all, "---\napiVersion: eventing.knative.dev/v1\nkind: Trigger\nmetadata: {name: theirs-%02d, namespace: %s, labels: {theirs: 'true'}}\n"+
			"spec: {broker: eventing, filter: {attributes: {type: nothing}}, subscriber: {uri: 'http://sinks.shop.svc.cluster.local:8080/theirs'}}\n", i, eventingNamespace)
	}
	s.do(t, all.String(), "apply", "-f", "-")
	s.do(t, "", "-n", eventingNamespace, "wait", "--for=condition=Ready", "--timeout=3m", "triggers.eventing.knative.dev", "-l", "theirs=true")
	s.accepted(t, 200)
	s.prober.Step("their Triggers are deleted")
	s.do(t, "", "-n", eventingNamespace, "delete", "triggers.eventing.knative.dev", "-l", "theirs=true")
	message := ""
	if err := poll.For(t.Context(), 2*time.Minute, "the Eventing says that the mesh refuses", func(ctx context.Context) error {
		is, err := s.dynamic.Resource(eventings).Namespace(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(is.Object, "status", "conditions")
		for _, c := range conditions {
			c, _ := c.(map[string]any)
			if c["type"] == "BackendAvailable" && c["status"] == "False" {
				message, _ = c["message"].(string)
				return nil
			}
		}
		return errors.New("it does not")
	}); err != nil {
		before := s.prober.Report().Accepted
		s.accepted(t, 200)
		t.Skipf("Knative has removed all subscribers this time: %d events were accepted after %d", s.prober.Report().Accepted-before, before)
	}
	t.Log(message)
	if !strings.Contains(message, "has a subscriber for Trigger theirs-") {
		t.Errorf("the Eventing says %q", message)
	}
	_, command, _ := strings.Cut(message, "Next: ")
	command, _, _ = strings.Cut(command, ", and when")
	for _, to := range []string{"NATS", "EventMesh"} {
		s.shell(t, "", strings.Replace(command, "NATS", to, 1))
		s.switched(t, to, 5*time.Minute)
		s.accepted(t, 200)
	}
	s.nothingLost(t)
}

// TestSoakEditedBroker: somebody edits the delivery of the Broker while an event is sent each 10
// ms. Knative recreates the Subscription of each Trigger that has no delivery of its own, and a
// Channel without subscribers answers with success.
func TestSoakEditedBroker(t *testing.T) {
	s := startSwitching(t, full)
	s.to(t, "EventMesh")
	s.accepted(t, 500)
	for retries := range 6 {
		s.prober.Step(fmt.Sprintf("edit %d", retries+1))
		s.do(t, "", "-n", eventingNamespace, "patch", "brokers.eventing.knative.dev", "eventing", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"delivery":{"retry":%d}}}`, 3+retries))
		s.accepted(t, 500)
	}
	s.nothingLost(t)
}

// TestSoakDeletedBroker: somebody deletes the Broker while an event is sent each 10 ms. The
// operator creates another one of that name, which has no subscriber yet and would drop events.
func TestSoakDeletedBroker(t *testing.T) {
	s := startSwitching(t, full)
	s.to(t, "EventMesh")
	s.accepted(t, 500)
	for i := range 4 {
		s.prober.Step(fmt.Sprintf("deletion %d", i+1))
		began := time.Now()
		s.do(t, "", "-n", eventingNamespace, "delete", "brokers.eventing.knative.dev", "eventing", "--wait=false")
		s.accepted(t, 1000)
		s.switched(t, "EventMesh", 3*time.Minute)
		t.Logf("deletion %d: 1,000 more events accepted after %.0f s", i+1, time.Since(began).Seconds())
	}
	s.nothingLost(t)
}

// TestSoakDeletedTrigger: somebody deletes the Trigger, and all Triggers of the namespace, while an
// event is sent each 10 ms. The one that carries events stays until another one does.
func TestSoakDeletedTrigger(t *testing.T) {
	s := startSwitching(t, full)
	s.to(t, "EventMesh")
	s.accepted(t, 500)
	for i := range 3 {
		s.prober.Step(fmt.Sprintf("deletion %d", i+1))
		began := time.Now()
		s.do(t, "", "-n", eventingNamespace, "delete", "triggers.eventing.knative.dev", "--all")
		gone := time.Since(began)
		s.accepted(t, 500)
		s.switched(t, "EventMesh", 2*time.Minute)
		t.Logf("deletion %d: gone after %.1f s", i+1, gone.Seconds())
	}
	for i := range 4 { // the next one is deleted before events come through it
		s.prober.Step(fmt.Sprintf("deletion %d of several", i+1))
		s.do(t, "", "-n", eventingNamespace, "delete", "triggers.eventing.knative.dev", "--all", "--wait=false")
		s.accepted(t, 50)
	}
	s.accepted(t, 500)
	s.switched(t, "EventMesh", 2*time.Minute)
	s.nothingLost(t)
}

// TestSoakDeletedParts: somebody deletes what Knative has made of the Broker and the Trigger, while
// an event is sent each 10 ms. Until it is back, Knative accepts events and drops them, and nobody
// but Knative can change that. It says how many, and that it ends.
func TestSoakDeletedParts(t *testing.T) {
	s := startSwitching(t, full)
	s.to(t, "EventMesh")
	s.accepted(t, 500)
	for _, kind := range []string{"subscriptions.messaging.knative.dev", "inmemorychannels.messaging.knative.dev"} {
		s.prober.Step(kind + " are deleted")
		s.do(t, "", "-n", eventingNamespace, "delete", kind, "--all", "--wait=false")
		s.accepted(t, 1500)
		s.switched(t, "EventMesh", 2*time.Minute)
		s.prober.Step(kind + " are back")
		s.accepted(t, 500)
	}
	s.stop()
	waiting, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_ = s.prober.Await(waiting) // the report has what is missing
	r := s.prober.Report()
	t.Logf("%d of %d accepted events were lost; the prober's report:\n%s", len(r.Missing), r.Accepted, r)
	for i := range r.Missing {
		if strings.HasSuffix(r.Missing[i].Step, "are back") {
			t.Errorf("%s was lost long after the deletion", &r.Missing[i])
		}
	}
}
