//go:build e2e && soak

package e2e

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// TestSoakKnativeSettings: an administrator changes settings of Knative while the mesh serves.
func TestSoakKnativeSettings(t *testing.T) {
	s := startSwitching(t, full)
	s.to(t, "EventMesh")
	s.accepted(t, 500)
	for _, settings := range []string{
		`{"authentication-oidc":"enabled"}`, `{"default-authorization-mode":"deny-all"}`, `{"transport-encryption":"permissive"}`, `{"transport-encryption":"strict"}`,
		`{"authentication-oidc":"enabled","default-authorization-mode":"deny-all"}`,
	} {
		s.prober.Step(settings)
		before := s.prober.Report()
		s.do(t, "", "-n", "knative-eventing", "patch", "configmaps", "config-features", "--type=merge", "-p", `{"data":`+settings+`}`)
		for i := range 8 {
			time.Sleep(5 * time.Second)
			u, err := s.dynamic.Resource(eventings).Namespace(s.namespace).Get(t.Context(), s.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
			bad := ""
			for _, c := range conditions {
				if c := c.(map[string]any); c["status"] != "True" {
					bad += fmt.Sprintf("; %v %v: %v", c["type"], c["reason"], c["message"])
				}
			}
			state, _, _ := unstructured.NestedString(u.Object, "status", "state")
			t.Logf("%s: after %d s: %d accepted, %s%s", settings, 5*(i+1), s.prober.Report().Accepted-before.Accepted, state, bad)
		}
		s.prober.Step("undone " + settings)
		s.do(t, "", "-n", "knative-eventing", "patch", "configmaps", "config-features", "--type=merge", "-p",
			`{"data":{"authentication-oidc":"disabled","default-authorization-mode":"allow-same-namespace","transport-encryption":"disabled"}}`)
		s.accepted(t, 500)
		s.switched(t, "EventMesh", 3*time.Minute)
	}
	s.nothingLost(t)
}
