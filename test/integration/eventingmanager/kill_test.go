package eventingmanager_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// released removes the Lease, so that the next operator need not wait until that of a killed one
// ends.
func (s *site) released() {
	s.t.Helper()
	leases := s.client.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace(s.namespace)
	if err := leases.Delete(s.t.Context(), s.prefix+"-manager.kyma-project.io", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
}

// reached tells whether the Eventing is ready, or, once it is to be deleted, whether it is gone.
func (s *site) reached(deleting bool) bool {
	e, err := s.eventing(s.namespace, "eventing")
	if deleting {
		return err != nil && poll.Gone(err) == nil
	}
	return err == nil && e.Status.State == operatorv1alpha1.StateReady && e.Status.ObservedGeneration == e.Generation
}

// unlessReached is an answer for poll.
func (s *site) unlessReached(deleting bool) func(context.Context) error {
	return s.onceChanged(func(context.Context) error {
		if !s.reached(deleting) {
			return errStill
		}
		return nil
	})
}

// TestKilledAtEveryWrite: the operator is killed after each single write of an installation and of
// a deletion, in make test after each fifth. Each time, another one goes on. In the end, everything
// is there, or gone.
func TestKilledAtEveryWrite(t *testing.T) {
	s := newSite(t, "killed-at-writes")
	s.binary = process.BuildPlain(t, "./cmd/eventing-manager") // the other tests have run the same with the race detector
	s.start()
	s.installed()
	want := s.left(false)
	s.remove(metav1.DeletePropagationBackground)
	s.gone(time.Minute)
	s.operator.Kill()
	s.check(s.client.Resource(claims).Namespace(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))

	s.create(eventings, strings.Replace(one, "sync: Interval", "sync: Interval, retention: Delete", 1))
	lives := s.lives(false)
	if diff := cmp.Diff(want, s.left(false)); diff != "" {
		t.Errorf("installed (-undisturbed +killed):\n%s", diff)
	}
	s.fill()
	s.empty()
	s.remove(metav1.DeletePropagationBackground)
	lives = append(lives, s.lives(true)...)
	if left := s.left(true); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	t.Logf("killed after each of %d writes: %v", len(lives), lives)
	if !all {
		return
	}
	for _, resource := range []string{"statefulsets", "secrets", "configmaps", "services", "persistentvolumeclaims", "eventings"} {
		if !slices.ContainsFunc(lives, func(r string) bool { return strings.Contains(r, resource) }) {
			t.Errorf("never killed at a write of %s", resource)
		}
	}
}

// lives starts one operator after the other, and kills each after its first write, or its fifth,
// until all is done. It returns these writes.
func (s *site) lives(deleting bool) (writes []string) {
	s.t.Helper()
	const most = 100
	nth := 5
	if all {
		nth = 1
	}
	for range most {
		proxy, err := faultproxy.Start(cluster.Config())
		s.check(err)
		s.kube, err = proxy.Kubeconfig(s.t.TempDir())
		s.check(err)
		s.released()
		running := make(chan *process.Process, 1)
		kill := proxy.KillAmong(func(r faultproxy.Request) bool { return !r.Renews && !strings.Contains(r.String(), "leases") }, nth, faultproxy.After, func() { (<-running).Kill() })
		running <- s.start()
		reached := s.unlessReached(deleting)
		s.check(poll.For(s.t.Context(), 3*time.Minute, "the operator writes, or all is done", func(ctx context.Context) error {
			if _, dead := kill.At(); dead {
				return nil
			}
			return reached(ctx)
		}))
		at, dead := kill.At()
		if !dead {
			s.operator.Kill()
			proxy.Close()
			s.kube = ""
			return writes
		}
		proxy.Close()
		writes = append(writes, at.String())
	}
	s.t.Fatalf("after %d writes nothing is reached: %v", most, writes)
	return nil
}

// TestKilledAtEveryRequestToNATS: the operator is killed when it sends its first, its second, its
// third piece of data to NATS, and so on, through an installation and a deletion; in make test at
// every second piece.
func TestKilledAtEveryRequestToNATS(t *testing.T) {
	s := newSite(t, "killed-at-requests")
	s.binary = process.BuildPlain(t, "./cmd/eventing-manager")
	step := int64(2)
	if all {
		step = 1
	}
	s.create(eventings, strings.Replace(one, "sync: Interval", "sync: Interval, retention: Delete", 1))
	for _, deleting := range []bool{false, true} {
		killed := 0
		for n := int64(1); n <= 40 && !s.reached(deleting); n += step {
			url, err := s.pods.NATS.URL(s.namespace, "eventing-nats-0")
			s.check(err)
			cut, err := faultproxy.StartCut(strings.TrimPrefix(url, "tls://"), n)
			s.check(err)
			t.Cleanup(cut.Close)
			s.released()
			s.args = []string{"--nats-url", "tls://" + cut.Address}
			s.start()
			reached := s.unlessReached(deleting)
			poll.Until(t, 2*time.Minute, "the operator sends, or all is done", func(ctx context.Context) error {
				if cut.Sent() >= n {
					return nil
				}
				return reached(ctx)
			})
			s.operator.Kill()
			cut.Close()
			killed++
		}
		t.Logf("killed %d times; deleting: %t", killed, deleting)
		if killed < 3 {
			t.Errorf("killed %d times only", killed)
		}
		s.args = nil
		s.released()
		s.start()
		if deleting {
			s.gone(time.Minute)
			if left := s.left(true); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			return
		}
		s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
		s.check(s.published(t.Context()))
		s.operator.Kill()
		s.remove(metav1.DeletePropagationBackground)
	}
}
