//go:build e2e && soak

package e2e

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
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

// TestSoakKnativeUpgrade: Knative is replaced by the minor version before, and by the current one
// again, twice, while the mesh serves and an event is sent each 10 ms.
func TestSoakKnativeUpgrade(t *testing.T) {
	s := switchingOn(t, full, kubernetes.FormerKnative())
	s.thisVersion(t)
	s.begin(t)
	s.to(t, "EventMesh")
	s.accepted(t, 500)
	for i := range 4 {
		former := i%2 == 0
		step := map[bool]string{true: "the version before", false: "the current version"}[former]
		s.prober.Step(step)
		before, began := s.prober.Report().Accepted, time.Now()
		if err := s.ApplyKnative(t.Context(), former); err != nil {
			t.Fatal(err)
		}
		s.accepted(t, 500)
		s.switched(t, "EventMesh", 2*time.Minute)
		t.Logf("%s: %d accepted in %.0f s", step, s.prober.Report().Accepted-before, time.Since(began).Seconds())
	}
	// What it serves with is complete: the way back and over again.
	s.to(t, "NATS")
	s.to(t, "EventMesh")
	s.nothingLost(t)
}

// TestSoakKnativeSettings: an administrator changes settings of Knative while the mesh serves, and
// an event is sent each 10 ms. Knative goes on to say that the Broker is ready. When no event is
// accepted, the Eventing says so.
func TestSoakKnativeSettings(t *testing.T) {
	const off = `{"authentication-oidc":"disabled","default-authorization-mode":"allow-same-namespace","transport-encryption":"disabled"}`
	s := startSwitching(t, full)
	s.to(t, "EventMesh")
	s.accepted(t, 500)
	set := func(settings string) {
		t.Helper()
		s.do(t, "", "-n", "knative-eventing", "patch", "configmaps", "config-features", "--type=merge", "-p", `{"data":`+settings+`}`)
	}
	for _, settings := range []string{
		`{"authentication-oidc":"enabled"}`, `{"default-authorization-mode":"deny-all"}`,
		`{"transport-encryption":"permissive"}`, `{"transport-encryption":"strict"}`,
		`{"authentication-oidc":"enabled","default-authorization-mode":"deny-all"}`,
	} {
		s.prober.Step(settings)
		set(settings)
		time.Sleep(35 * time.Second) // two tries fail, 10 seconds apart, and one more says it
		before := s.prober.Report().Accepted
		time.Sleep(5 * time.Second)
		accepted := s.prober.Report().Accepted - before
		state, why := s.condition(t, operatorv1alpha1.ConditionBackendAvailable)
		t.Logf("%s: %d events accepted in 5 s; the Eventing is %s: %s", settings, accepted, state, why)
		if (accepted == 0) != strings.Contains(why, "the mesh takes no event of the controller") {
			t.Errorf("%s: %d events accepted in 5 s, and the Eventing says %q", settings, accepted, why)
		}
		s.prober.Step("without " + settings)
		set(off)
		s.accepted(t, 500)
		s.switched(t, "EventMesh", 3*time.Minute)
	}
	s.nothingLost(t)
}

// condition is the state of the Eventing, and the message of a condition.
func (s *switching) condition(t *testing.T, of string) (state, message string) {
	t.Helper()
	u, err := s.dynamic.Resource(eventings).Namespace(s.namespace).Get(t.Context(), s.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	state, _, _ = unstructured.NestedString(u.Object, "status", "state")
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == of {
			message, _ = c["message"].(string)
		}
	}
	return state, message
}
