package eventingmanager_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestPausedOperator: an operator that is about to delete the volume of NATS is paused, longer than
// its Lease lasts. Another one finishes the deletion, and installs NATS again, whose volume has the
// same name and holds an event. The first one must not delete that when it goes on.
func TestPausedOperator(t *testing.T) {
	quick(t)
	for _, tc := range []struct {
		reason, namespace string
		// hold lets the operator wait until it is paused.
		hold func(s *site, p *faultproxy.Proxy) (arrived <-chan struct{}, release func())
		// sent: its deletion has left the process, and arrives when the other operator is done.
		sent bool
	}{
		{
			reason: "between its look and its write", namespace: "paused-look",
			hold: func(s *site, p *faultproxy.Proxy) (<-chan struct{}, func()) {
				// Held is the last request of the look in which only volumes are left.
				var last atomic.Bool
				p.Use(func(_ context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
					if r.Is("pods", "list") {
						last.Store(s.onlyVolumes())
					}
					return next()
				})
				h := p.Hold(func(r faultproxy.Request) bool { return last.Load() && r.Is("subscriptions", "list") })
				return h.Arrived(), h.Release
			},
		},
		{
			reason: "while it writes", namespace: "paused-write", sent: true,
			hold: func(_ *site, p *faultproxy.Proxy) (<-chan struct{}, func()) {
				h := p.Hold(func(r faultproxy.Request) bool { return r.Is("persistentvolumeclaims", "delete") })
				return h.Arrived(), h.Release
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := newSite(t, tc.namespace)
			proxy, err := faultproxy.Start(cluster.Config())
			s.check(err)
			t.Cleanup(proxy.Close)
			s.kube, err = proxy.Kubeconfig(t.TempDir())
			s.check(err)
			first := s.start()
			s.create(eventings, strings.Replace(one, "sync: Interval", "sync: Interval, retention: Delete", 1))
			s.await(90*time.Second, "Ready", "", "")
			s.fill()
			s.empty()
			arrived, release := tc.hold(s, proxy)
			s.remove(metav1.DeletePropagationBackground)
			first.Await(arrived, "the operator is about to delete the volume")
			before, err := s.get(claims, "data-eventing-nats-0")
			s.check(err)
			first.Signal(syscall.SIGSTOP)
			if !tc.sent {
				release()
			}

			s.kube = ""
			s.start()
			s.gone(2 * time.Minute)
			s.installed()
			s.fill()
			after, err := s.get(claims, "data-eventing-nats-0")
			s.check(err)
			if after.GetUID() == before.GetUID() {
				t.Fatal("the volume claim is the same")
			}

			mark := len(proxy.Log())
			if tc.sent {
				release()
				deleted := func(log []faultproxy.Entry) bool {
					for _, e := range log {
						if e.Is("persistentvolumeclaims", "delete") && e.Done {
							return true
						}
					}
					return false
				}
				if err := proxy.Wait(t.Context(), deleted); err != nil {
					t.Fatal(err)
				}
			}
			first.Signal(syscall.SIGCONT)
			if code := first.Wait(); code != 1 {
				t.Errorf("the operator that was paused ends with %d", code)
			}
			for _, e := range proxy.Log() {
				if e.Is("persistentvolumeclaims", "delete") && (!tc.sent || e.Forwarded < http.StatusBadRequest) {
					t.Errorf("the operator that was paused has sent: %s (%d)", e.Request, e.Forwarded)
				}
			}
			for _, e := range proxy.Log()[mark:] {
				if e.Writes() && !e.Is("leases") {
					t.Errorf("the operator that was paused wrote: %s (%d)", e.Request, e.Forwarded)
				}
			}
			if now, err := s.get(claims, "data-eventing-nats-0"); err != nil || now.GetUID() != after.GetUID() || now.GetDeletionTimestamp() != nil {
				t.Errorf("the volume claim was deleted: %v", err)
			}
			s.empty()
		})
	}
}

// onlyVolumes tells whether the Eventing is being deleted, and a volume is all that is left of
// NATS.
func (s *site) onlyVolumes() bool {
	e, err := s.eventing(s.namespace, "eventing")
	if err != nil || e.DeletionTimestamp == nil {
		return false
	}
	list, err := s.client.Resource(pods).Namespace(s.namespace).List(context.WithoutCancel(s.t.Context()), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=nats"})
	if err != nil || len(list.Items) > 0 {
		return false
	}
	_, err = s.get(claims, "data-eventing-nats-0")
	_, running := s.get(statefulSets, "eventing-nats")
	return err == nil && poll.Gone(running) == nil
}
