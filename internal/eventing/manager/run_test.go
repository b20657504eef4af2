package manager

import (
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestRescales(t *testing.T) {
	before := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "eventing-controller", ResourceVersion: "1", Labels: map[string]string{"a": "b"}},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionTrue, Reason: "ValidMetricFound", Message: "of 40m"},
		}},
	}
	for reason, c := range map[string]struct {
		change func(*autoscalingv2.HorizontalPodAutoscaler)
		want   bool
	}{
		"nothing": {func(*autoscalingv2.HorizontalPodAutoscaler) {}, false},
		"a measurement": {func(a *autoscalingv2.HorizontalPodAutoscaler) {
			now := metav1.NewTime(time.Now())
			a.ResourceVersion, a.ManagedFields = "2", []metav1.ManagedFieldsEntry{{Time: &now}}
			a.Status.CurrentReplicas, a.Status.DesiredReplicas, a.Status.LastScaleTime = 2, 3, &now
			a.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
				Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageValue: new(resource.MustParse("40m"))},
			}}}
			a.Status.Conditions[0].Message, a.Status.Conditions[0].LastTransitionTime = "of 41m", now
		}, false},
		"it cannot scale": {func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Status.Conditions[0].Status, a.Status.Conditions[0].Reason = corev1.ConditionFalse, "FailedGetResourceMetric"
		}, true},
		"the bounds":  {func(a *autoscalingv2.HorizontalPodAutoscaler) { a.Spec.MaxReplicas = 4 }, true},
		"a label":     {func(a *autoscalingv2.HorizontalPodAutoscaler) { a.Labels = nil }, true},
		"it is going": {func(a *autoscalingv2.HorizontalPodAutoscaler) { a.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, true},
	} {
		after := before.DeepCopy()
		c.change(after)
		if got := rescales(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != c.want {
			t.Errorf("%s: it is %t that more than a measurement has changed", reason, got)
		}
	}
}
