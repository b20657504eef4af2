package eventingmanager_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

const subscription = `
apiVersion: eventing.kyma-project.io/v1alpha2
kind: Subscription
metadata: {name: orders}
spec: {sink: "http://orders.%s.svc.cluster.local", source: commerce, types: [order.created.v1]}
`

// remove asks for the deletion of the Eventing.
func (s *site) remove(policy metav1.DeletionPropagation) {
	s.t.Helper()
	s.check(s.client.Resource(eventings).Namespace(s.namespace).Delete(s.t.Context(), "eventing", metav1.DeleteOptions{PropagationPolicy: &policy}))
}

// force lets a deletion go on although events may be lost.
func (s *site) force() {
	s.t.Helper()
	s.patch(eventings, "eventing", `{"metadata":{"annotations":{"eventing.kyma-project.io/force-deletion":"true"}}}`)
}

// blocked waits until the deletion says why it does not go on.
func (s *site) blocked(reason, message string) {
	s.t.Helper()
	e := s.await(time.Minute, operatorv1alpha1.StateWarning, operatorv1alpha1.ConditionDeleted, reason)
	c := meta.FindStatusCondition(e.Status.Conditions, operatorv1alpha1.ConditionDeleted)
	if !strings.Contains(c.Message, message) || !strings.Contains(c.Message, "kubectl -n "+s.namespace+" annotate") {
		s.t.Errorf("want %q and the next command, got %q", message, c.Message)
	}
	if _, err := s.get(statefulSets, "eventing-nats"); err != nil {
		s.t.Errorf("NATS was removed: %v", err)
	}
}

// fill stores an event that nobody takes yet.
func (s *site) fill() {
	s.t.Helper()
	if _, err := s.js("controller").CreateConsumer(s.t.Context(), backend.Stream, stream.Consumer("shop", "orders", []string{backend.Filter("commerce", "a.b")}, false)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.js("publisher").Publish(s.t.Context(), backend.Subject("commerce", "a.b"), []byte("1"), jetstream.WithRetryAttempts(0)); err != nil {
		s.t.Fatal(err)
	}
}

// empty takes the event.
func (s *site) empty() {
	s.t.Helper()
	c, err := s.js("controller").Consumer(s.t.Context(), backend.Stream, backend.ConsumerName("shop", "orders"))
	s.check(err)
	m, err := c.Next(jetstream.FetchMaxWait(50 * time.Second))
	s.check(err)
	s.check(m.DoubleAck(s.t.Context()))
}

// TestDeletion: everything goes, and nothing goes that holds an event.
func TestDeletion(t *testing.T) {
	for i, tc := range []struct {
		reason string
		spec   string // a merge patch of the Eventing before its deletion
		before func(s *site)
		after  func(s *site) // once the deletion is asked for
		claims bool          // are left
		quick  bool          // is in make test
	}{
		{reason: "volumes stay by default", claims: true},
		{reason: "volumes are deleted on request", quick: true, spec: `{"spec":{"backend":{"config":{"natsStorage":{"retention":"Delete"}}}}}`},
		{reason: "with storage in memory there are none", spec: `{"spec":{"backend":{"config":{"natsStorage":{"retention":"Delete"}}}}}`},
		{
			reason: "with storage in memory, a Subscription blocks it", quick: true,
			before: func(s *site) { s.create(subscriptions, fmt.Sprintf(subscription, s.namespace)) },
			after: func(s *site) {
				s.blocked(operatorv1alpha1.ReasonSubscriptions, s.namespace+"/orders")
				s.delete(subscriptions, "orders")
			},
		},
		{
			reason: "an event that nobody took blocks it, until somebody takes it", quick: true, claims: true,
			before: func(s *site) { s.fill() },
			after: func(s *site) {
				s.blocked(operatorv1alpha1.ReasonStreamNotEmpty, "1 event")
				if err := s.published(s.t.Context()); err == nil {
					s.t.Error("the stream is not closed")
				}
				s.empty()
			},
		},
		{
			reason: "a stream of somebody else blocks it, until it is deleted", claims: true,
			before: func(s *site) {
				_, err := s.js("manager").CreateStream(s.t.Context(), jetstream.StreamConfig{Name: "theirs", Subjects: []string{"theirs.>"}, MaxBytes: 1 << 20})
				s.check(err)
			},
			after: func(s *site) {
				s.blocked(operatorv1alpha1.ReasonForeignStreams, "theirs")
				s.check(s.js("manager").DeleteStream(s.t.Context(), "theirs"))
			},
		},
		{
			reason: "a consumer of somebody else blocks it, until it is deleted", claims: true,
			before: func(s *site) {
				_, err := s.js("manager").CreateConsumer(s.t.Context(), backend.Stream, jetstream.ConsumerConfig{Durable: "theirs"})
				s.check(err)
			},
			after: func(s *site) {
				s.blocked(operatorv1alpha1.ReasonForeignStreams, "theirs")
				s.check(s.js("manager").DeleteConsumer(s.t.Context(), backend.Stream, "theirs"))
			},
		},
		{
			reason: "NATS that does not answer blocks it, until it does", claims: true,
			before: func(s *site) { s.fill(); s.empty(); s.scale(0) },
			after: func(s *site) {
				s.blocked(operatorv1alpha1.ReasonNATSUnreachable, "NATS may hold events")
				s.scale(1)
			},
		},
		{
			reason: "it is forced, and volumes stay all the same", claims: true,
			before: func(s *site) {
				s.create(subscriptions, fmt.Sprintf(subscription, s.namespace))
				s.patch(subscriptions, "orders", `{"metadata":{"finalizers":["eventing.kyma-project.io"]}}`)
				s.fill()
			},
			after: func(s *site) {
				s.blocked(operatorv1alpha1.ReasonSubscriptions, "orders")
				s.force()
			},
		},
	} {
		if !all && !tc.quick {
			continue
		}
		t.Run(tc.reason, func(t *testing.T) {
			s := newSite(t, fmt.Sprintf("deletion-%d", i))
			s.start()
			if strings.Contains(tc.reason, "memory") {
				s.create(eventings, strings.Replace(one, "natsStreamReplicas: 1,", "natsStreamReplicas: 1, natsStreamStorageType: Memory,", 1))
				s.await(90*time.Second, operatorv1alpha1.StateReady, "", "")
			} else {
				s.installed()
			}
			if tc.spec != "" {
				s.patch(eventings, "eventing", tc.spec)
			}
			if tc.before != nil {
				tc.before(s)
			}
			s.remove(metav1.DeletePropagationBackground)
			if tc.after != nil {
				tc.after(s)
			}
			s.gone(time.Minute)
			if left := s.left(false); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if claims := s.left(true); (len(claims) > 0) != tc.claims {
				t.Errorf("volumes left: %v, want %v", claims, tc.claims)
			}
		})
	}
}

// scale makes NATS go and come, without the operator.
func (s *site) scale(replicas int) {
	s.t.Helper()
	if replicas == 0 {
		s.operator.Kill() // it would repair that
		s.patch(statefulSets, "eventing-nats", `{"spec":{"replicas":0}}`)
		poll.Until(s.t, time.Minute, "the pod is gone", func(context.Context) error {
			_, err := s.get(pods, "eventing-nats-0")
			return poll.Gone(err)
		})
		s.start()
		return
	}
	s.patch(statefulSets, "eventing-nats", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// TestVolumesThatAreLeft: volumes that are left are used again, with what is in them.
func TestVolumesThatAreLeft(t *testing.T) {
	quick(t)
	s := newSite(t, "again")
	s.start()
	s.installed()
	s.remove(metav1.DeletePropagationForeground)
	s.gone(time.Minute)
	before, err := s.get(claims, "data-eventing-nats-0")
	s.check(err)
	if before.GetAnnotations()["eventing.kyma-project.io/drained-at"] == "" {
		t.Errorf("the volume does not say that it is drained: %v", before.GetAnnotations())
	}
	s.installed()
	after, err := s.get(claims, "data-eventing-nats-0")
	s.check(err)
	if after.GetUID() != before.GetUID() || after.GetAnnotations()["eventing.kyma-project.io/drained-at"] != "" {
		t.Errorf("the volume is another one, or still says that it is drained: %v", after.GetAnnotations())
	}
}

// TestCareless: ways to delete an Eventing that must not stop NATS.
func TestCareless(t *testing.T) {
	s := newSite(t, "careless")
	s.start()
	s.installed()
	s.create(subscriptions, fmt.Sprintf(subscription, s.namespace))
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		s.remove(policy)
		s.blocked(operatorv1alpha1.ReasonSubscriptions, "orders")
		if pod, err := s.get(pods, "eventing-nats-0"); err != nil || pod.GetDeletionTimestamp() != nil {
			t.Errorf("%s: the pod of NATS goes: %v", policy, err)
		}
		// The finalizer is removed by hand, as people do when an object hangs.
		_, err := s.client.Resource(eventings).Namespace(s.namespace).Patch(t.Context(), "eventing", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		s.check(err)
		s.gone(10 * time.Second)
		time.Sleep(2 * time.Second) // that nothing happens cannot be awaited
		if left := s.left(true); !slices.Contains(left, "StatefulSet eventing-nats") || !slices.Contains(left, "Pod eventing-nats-0") {
			t.Errorf("%s: left: %v", policy, left)
		}
		// The next Eventing takes over what is there. The Subscription has no consumer, so the
		// stream stays as it is: open.
		s.create(eventings, one)
		s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
	}
}
