//go:build e2e && soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	versions "github.com/kyma-project/eventmesh-migration/test/upgrade"
)

// TestSoakUpgradeOnMesh upgrades the version before, which had a Trigger for each type of a
// Subscription, while the mesh delivers an event each 10 ms. Its Triggers stay until the backend is
// switched, and events come twice until what they were sent before the upgrade has ended.
func TestSoakUpgradeOnMesh(t *testing.T) {
	of := full
	of.subscriptions = measure.Number(t, "EVENTING_SOAK_SUBSCRIPTIONS", full.subscriptions)
	s := switchingCluster(t, of)
	s.moreVolumes(t, 2)
	former := versions.Sources(t)
	s.version(t, func(ctx context.Context) error { return s.started.ImagesOf(ctx, former, "previous") })
	s.begin(t)
	s.to(t, "EventMesh")
	if n := len(s.triggers(t)); n != of.subscriptions {
		t.Fatalf("the version before has %d Triggers for %d Subscriptions", n, of.subscriptions)
	}
	s.prober.Step("the version before")
	s.accepted(t, 1000)

	s.thisVersion(t)
	s.prober.Step("upgrade")
	began := time.Now()
	s.do(t, "", "apply", "-f", s.manifest)
	poll.Until(t, 5*time.Minute, "all programs are of this version, and its Trigger is there", func(ctx context.Context) error {
		if !slices.Contains(s.triggers(t), present) {
			return errors.New("there is no Trigger for all Subscriptions")
		}
		pods, err := s.client.CoreV1().Pods(eventingNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if image := pods.Items[i].Spec.Containers[0].Image; strings.HasSuffix(image, ":previous") {
				return fmt.Errorf("pod %s has %s", pods.Items[i].Name, image)
			}
		}
		return s.isSwitched(ctx, "EventMesh")
	})
	t.Logf("upgraded in %.0f s", time.Since(began).Seconds())
	s.prober.Step("both ways")
	time.Sleep(backend.MeshTimeout + 10*time.Second) // what was sent before may still arrive
	steps := []string{"this version", "to NATS", "to the mesh"}
	s.prober.Step(steps[0])
	s.accepted(t, 1000)
	for i, to := range []string{"NATS", "EventMesh"} {
		s.prober.Step(steps[i+1])
		s.want(t, to)
		s.switched(t, to, 5*time.Minute)
		s.accepted(t, 500)
	}
	if names := s.triggers(t); len(names) != 1 || names[0] != present {
		t.Errorf("after the switch, the Triggers are %q", names)
	}
	r := s.nothingLost(t)
	if gap := s.prober.LongestGap(); gap > longestGap {
		t.Errorf("no event was accepted for %s", gap)
	}
	twice := 0
	for i := range r.Duplicates {
		if slices.Contains(steps, r.Duplicates[i].Step) {
			twice++
		}
	}
	t.Logf("%d events arrived twice, %d of them after both ways", len(r.Duplicates), twice)
	if twice*1000 > r.Accepted {
		t.Errorf("%d events arrived more than once after the upgrade", twice)
	}
}

// present leads the events of all Subscriptions.
var present = backend.Names(backend.DefaultPrefix).Triggers()[0]

// triggers are the names of those that lead events of the mesh.
func (s *switching) triggers(t *testing.T) []string {
	t.Helper()
	list, err := s.dynamic.Resource(schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "triggers"}).Namespace(eventingNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}
