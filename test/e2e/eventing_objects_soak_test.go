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
	"k8s.io/apimachinery/pkg/runtime/schema"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestSoakDeletedObjects: somebody deletes each object of eventing, one after the other, while an
// event is sent each 10 ms. What the manifest has is applied again, all else comes back by itself.
func TestSoakDeletedObjects(t *testing.T) {
	s := startSwitching(t, full)
	s.moreVolumes(t, 2)
	for _, on := range []operatorv1alpha1.BackendType{operatorv1alpha1.NATS, operatorv1alpha1.EventMesh} {
		if on == operatorv1alpha1.EventMesh {
			s.to(t, string(on))
		}
		s.accepted(t, 300)
		for _, of := range []schema.GroupVersionResource{
			{Group: "apps", Version: "v1", Resource: "deployments"},
			{Group: "apps", Version: "v1", Resource: "statefulsets"},
			{Version: "v1", Resource: "pods"},
			{Version: "v1", Resource: "services"},
			{Version: "v1", Resource: "configmaps"},
			{Version: "v1", Resource: "secrets"},
			{Version: "v1", Resource: "serviceaccounts"},
			{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
			{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
			{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
			{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
			{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
			{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
			{Version: "v1", Resource: "persistentvolumeclaims"},
		} {
			list, err := s.dynamic.Resource(of).Namespace(eventingNamespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				u := &list.Items[i]
				if u.GetName() == "kube-root-ca.crt" || u.GetName() == "default" || u.GetLabels()["app.kubernetes.io/instance"] == "" && !strings.HasPrefix(u.GetName(), "eventing") {
					continue
				}
				step := fmt.Sprintf("%s: %s %s", on, of.Resource, u.GetName())
				s.prober.Step(step)
				before, began := s.prober.Report(), time.Now()
				if on == operatorv1alpha1.NATS { // the mesh gives up after three tries
					s.dies("/03") // its events wait for their next try
					s.accepted(t, 40)
				}
				s.do(t, "", "-n", eventingNamespace, "delete", of.GroupResource().String(), u.GetName(), "--wait=false", "--ignore-not-found")
				time.Sleep(2 * time.Second)
				s.dies("")
				s.do(t, "", "apply", "-f", s.manifest)
				if of.Resource == "serviceaccounts" && u.GetName() == "eventing-manager" {
					// Nobody else replaces the pod that has a token of the former one.
					s.do(t, "", "-n", eventingNamespace, "rollout", "restart", "deployments", "eventing-manager")
				}
				s.accepted(t, 100)
				if of.Resource == "persistentvolumeclaims" {
					s.claimDeleted(t, u.GetName())
					continue
				}
				s.switched(t, string(on), 5*time.Minute)
				s.accepted(t, 100)
				after := s.prober.Report()
				t.Logf("%s: %d accepted in %.0f s", step, after.Accepted-before.Accepted, time.Since(began).Seconds())
			}
		}
	}
	s.nothingLost(t)
}

// claimDeleted waits until the Eventing says what becomes of a volume whose claim was deleted while
// its server runs, and runs the command that keeps it. The next switch of the backend delivers what
// it has, and then it goes.
func (s *switching) claimDeleted(t *testing.T, name string) {
	t.Helper()
	var command string
	poll.Until(t, time.Minute, "the Eventing warns of the claim", func(context.Context) error {
		state, message := s.condition(t, operatorv1alpha1.ConditionPodsReady)
		_, after, said := strings.Cut(message, "`")
		if command, _, _ = strings.Cut(after, "`"); !said || state != string(operatorv1alpha1.StateWarning) || !strings.Contains(message, "PersistentVolumeClaim "+name+" is being deleted") {
			return fmt.Errorf("the Eventing is %s: %s", state, message)
		}
		return nil
	})
	s.shell(t, t.TempDir(), command)
}

// TestSoakLostVolumes: the volume of one of three NATS servers after the other is lost with its
// pod, as when a disk is broken for good. The next one is lost as soon as the Eventing is Ready
// again. An event is sent each 10 ms, and a sink refuses its events, so that they are only in NATS.
func TestSoakLostVolumes(t *testing.T) {
	of := full
	of.servers = 3
	s := startSwitching(t, of)
	s.moreVolumes(t, of.servers)
	s.backlog(t)
	for n := range of.servers {
		name := fmt.Sprintf("eventing-nats-%d", n)
		claim := "data-" + name
		s.prober.Step("lost the volume of " + name)
		began := time.Now()
		former, err := s.client.CoreV1().PersistentVolumeClaims(eventingNamespace).Get(t.Context(), claim, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.do(t, "", "-n", eventingNamespace, "delete", "persistentvolumeclaim", claim, "--wait=false")
		s.do(t, "", "-n", eventingNamespace, "delete", "pod", name, "--grace-period=0", "--force")
		poll.Until(t, 3*time.Minute, "the server runs with another volume", func(ctx context.Context) error {
			is, err := s.client.CoreV1().PersistentVolumeClaims(eventingNamespace).Get(ctx, claim, metav1.GetOptions{})
			if err == nil && is.UID == former.UID {
				err = errors.New("its claim is the former one")
			}
			return err
		})
		s.podsReady(t, "nats", of.servers)
		s.ready(t, 5*time.Minute)
		t.Logf("%s: Ready after %.0f s", name, time.Since(began).Seconds())
	}
	s.dies("")
	s.accepted(t, 500)
	s.nothingLost(t)
}

// TestSoakDeletedContract: somebody deletes the ConfigMap that says which backend serves, again and
// again, while an event is sent each 10 ms. Meanwhile events wait for their next try, because a
// sink refuses them. EVENTING_SOAK_EACH is how often.
func TestSoakDeletedContract(t *testing.T) {
	n := measure.Number(t, "EVENTING_SOAK_EACH", 20)
	s := startSwitching(t, full)
	s.accepted(t, 300)
	for i := range n {
		s.prober.Step(fmt.Sprintf("deletion %d", i+1))
		s.dies("/03")
		s.accepted(t, 60)
		s.do(t, "", "-n", eventingNamespace, "delete", "configmap", backend.Names(backend.DefaultPrefix).Backends())
		s.accepted(t, 60)
		s.dies("")
		s.switched(t, string(operatorv1alpha1.NATS), time.Minute)
		s.accepted(t, 200)
	}
	s.nothingLost(t)
}
