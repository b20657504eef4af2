package eventingmanager_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/rollout"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// autoscaled lets the real autoscaler have the number of pods, and then sets it again. In between
// it is never the 1 that a Deployment without a number gets: the generation says so.
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
	// An autoscaler leaves what was scaled to 0 alone.
	for _, program := range programs {
		s.patch(deployments, program, `{"spec":{"replicas":0}}`)
	}
	number(2)
	s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
	s.scaledByAnother(t, programs, number, scaler)
	s.patch(eventings, "eventing", `{"spec":{"publisher":{"replicas":{"min":1,"max":1}},"controller":{"replicas":1,"maxReplicas":null}}}`)
	scaler(false)
	number(1)
	s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
}

// scaledByAnother creates autoscalers of a user: one with the name of the Deployment, as `kubectl
// autoscale` gives it, and the one of the documentation. Two would keep each other from scaling, so
// the operator's go.
func (s *site) scaledByAnother(t *testing.T, programs []string, number func(int64) []int64, scaler func(bool)) {
	t.Helper()
	s.patch(eventings, "eventing", `{"spec":{"publisher":{"replicas":{"max":2}},"controller":{"maxReplicas":null}}}`)
	scaler(false)
	s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
	page, err := os.ReadFile("../../../docs/eventing/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, documented, _ := strings.Cut(string(page), "```yaml\napiVersion: autoscaling/v2\n")
	documented, _, _ = strings.Cut(documented, "```")
	documented = "apiVersion: autoscaling/v2\n" + strings.Replace(documented, "namespace: kyma-system", "namespace: "+s.namespace, 1)
	named := strings.NewReplacer("name: eventing-controller-by-backlog", "name: "+programs[0], "name: eventing-controller}", "name: "+programs[0]+"}")
	var names []string
	for _, text := range []string{named.Replace(documented), documented} {
		names = append(names, s.create(autoscalers, text).GetName())
	}
	number(3)
	s.patch(eventings, "eventing", `{"spec":{"publisher":{"replicas":{"max":5}},"controller":{"maxReplicas":5}}}`)
	for i, condition := range []string{operatorv1alpha1.ConditionPublisherProxyReady, operatorv1alpha1.ConditionSubscriptionManagerReady} {
		poll.Until(t, time.Minute, condition+" names "+names[i], func(context.Context) error {
			e, err := s.eventing(s.namespace, "eventing")
			if err != nil {
				return err
			}
			if c := meta.FindStatusCondition(e.Status.Conditions, condition); e.Status.State != operatorv1alpha1.StateReady || !strings.HasPrefix(c.Message, "HorizontalPodAutoscaler "+names[i]+",") {
				return fmt.Errorf("%s: %+v", e.Status.State, c)
			}
			return nil
		})
	}
	number(3)
	if _, err := s.get(autoscalers, programs[1]); !apierrors.IsNotFound(err) {
		t.Errorf("the operator has an autoscaler beside that of the user: %v", err)
	}
	for _, name := range names {
		if err := s.client.Resource(autoscalers).Namespace(s.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
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
