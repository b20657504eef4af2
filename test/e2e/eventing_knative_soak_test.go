//go:build e2e && soak

package e2e

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSoakKnativeRestarts: each Deployment of Knative is restarted as an upgrade does it, and then
// all of its pods are killed, while an event is sent each 10 ms.
func TestSoakKnativeRestarts(t *testing.T) {
	s := startSwitching(t, full)
	s.to(t, "EventMesh")
	s.accepted(t, 500)
	deployments, err := s.client.AppsV1().Deployments("knative-eventing").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range deployments.Items {
		is := &deployments.Items[i]
		name := "deployment/" + is.Name
		for _, how := range []string{"restarted", "killed"} {
			s.prober.Step(name + " is " + how)
			before := s.prober.Report().Accepted
			began := time.Now()
			if how == "restarted" {
				s.do(t, "", "-n", "knative-eventing", "rollout", "restart", name)
			} else {
				s.do(t, "", "-n", "knative-eventing", "delete", "pods", "-l", metav1.FormatLabelSelector(is.Spec.Selector), "--force", "--grace-period=0", "--wait=false")
			}
			s.do(t, "", "-n", "knative-eventing", "rollout", "status", name, "--timeout=5m")
			s.accepted(t, 500)
			s.switched(t, "EventMesh", 2*time.Minute)
			t.Logf("%s %s: %d accepted in %.0f s", name, how, s.prober.Report().Accepted-before, time.Since(began).Seconds())
		}
	}
	s.nothingLost(t)
}
