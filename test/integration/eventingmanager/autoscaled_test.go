package eventingmanager_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/rollout"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// autoscaled lets the real autoscaler have the number of pods, and takes it back. In between it is
// never the 1 that a Deployment without a number gets: the generation says so.
func (s *site) autoscaled(t *testing.T) {
	programs := []string{"eventing-publisher-proxy", "eventing-controller"}
	number := func(replicas int64) (generations []int64) {
		t.Helper()
		for _, program := range programs {
			poll.Until(t, time.Minute, fmt.Sprintf("%s has %d pods", program, replicas), func(context.Context) error {
				u, err := s.get(deployments, program)
				if err != nil {
					return err
				}
				if is, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas"); is != replicas {
					return fmt.Errorf("%d are wanted", is)
				}
				generations = append(generations, u.GetGeneration())
				return nil
			})
		}
		return generations
	}
	scaler := func(exists bool) {
		t.Helper()
		for _, program := range programs {
			poll.Until(t, time.Minute, fmt.Sprintf("the autoscaler of %s is there: %t", program, exists), func(context.Context) error {
				_, err := s.get(autoscalers, program)
				if apierrors.IsNotFound(err) == exists {
					return fmt.Errorf("it is not: %w", err)
				}
				return nil
			})
		}
	}
	fixed := `{"spec":{"publisher":{"replicas":{"min":2,"max":2}},"controller":{"replicas":2,"maxReplicas":null}}}`
	for range 2 { // the second time, the number has been handed over before
		s.patch(eventings, "eventing", fixed)
		scaler(false)
		before := number(2)
		s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
		s.patch(eventings, "eventing", `{"spec":{"publisher":{"replicas":{"max":3}},"controller":{"maxReplicas":3}}}`)
		scaler(true)
		s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
		for i, now := range number(2) {
			// An annotation of ours has changed, which counts for a Deployment.
			if now != before[i]+1 {
				t.Errorf("%s had another number of pods in between: generation %d, then %d", programs[i], before[i], now)
			}
		}
	}
	for _, program := range programs {
		s.patch(deployments, program, `{"spec":{"replicas":5}}`)
		poll.Until(t, time.Minute, "the autoscaler misses the metrics server", func(context.Context) error {
			u, err := s.get(autoscalers, program)
			if err == nil && len(rollout.Unscaled(time.Now().Add(10*time.Minute), u)) != 1 {
				err = fmt.Errorf("its status is %v", u.Object["status"])
			}
			return err
		})
	}
	number(3) // by the autoscaler, without any metrics: these are its bounds
	s.measured(t, programs)
	s.patch(eventings, "eventing", `{"spec":{"publisher":{"replicas":{"min":1,"max":1}},"controller":{"replicas":1,"maxReplicas":null}}}`)
	scaler(false)
	number(1)
	s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
}

// measured writes what an autoscaler that has metrics writes all the time. The operator does not
// look at everything for that.
func (s *site) measured(t *testing.T, programs []string) {
	t.Helper()
	for _, program := range programs {
		poll.Until(t, time.Minute, program+" has all pods", func(context.Context) error {
			u, err := s.get(deployments, program)
			if ready, _, _ := unstructured.NestedInt64(u.Object, "status", "readyReplicas"); err == nil && ready != 3 {
				err = fmt.Errorf("%d are ready", ready)
			}
			return err
		})
	}
	s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
	time.Sleep(time.Second) // that the operator has looked at the last pod cannot be seen
	mark, err := cluster.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const times = 10
	for i := range times {
		for _, program := range programs {
			metric := fmt.Sprintf(`{"status":{"currentMetrics":[{"type":"Resource","resource":{"name":"cpu","current":{"averageValue":"%dm"}}}]}}`, i+1)
			if _, err := s.client.Resource(autoscalers).Namespace(s.namespace).Patch(t.Context(), program, types.MergePatchType, []byte(metric), metav1.PatchOptions{}, "status"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(200 * time.Millisecond) // longer than a look takes
	}
	looks, err := cluster.Requests(t.Context(), mark, func(r kubernetes.Request) bool {
		return byOperator(r) && r.Verb == "list" && r.Resource == "persistentvolumeclaims" && r.Namespace == s.namespace
	})
	if err != nil {
		t.Fatal(err)
	}
	// One is the routine, and one of the real autoscaler, which says again that it misses metrics.
	if len(looks) > 2 {
		t.Errorf("%d measurements of autoscalers made the operator look %d times", times, len(looks))
	}
}
