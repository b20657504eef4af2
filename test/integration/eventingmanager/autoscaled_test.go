package eventingmanager_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/rollout"
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
	s.patch(eventings, "eventing", `{"spec":{"publisher":{"replicas":{"min":1,"max":1}},"controller":{"replicas":1,"maxReplicas":null}}}`)
	scaler(false)
	number(1)
	s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
}
