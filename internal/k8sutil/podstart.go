package k8sutil

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PodStart is when the youngest process of a pod began: a container that was
// restarted has forgotten all that was in its memory, and the pod does not show
// it.
func PodStart(pod *unstructured.Unstructured) time.Time {
	latest := pod.GetCreationTimestamp().Time
	later := func(obj map[string]any, fields ...string) {
		text, _, _ := unstructured.NestedString(obj, fields...)
		if t, err := time.Parse(time.RFC3339, text); err == nil && t.After(latest) {
			latest = t
		}
	}
	later(pod.Object, "status", "startTime")
	containers, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses")
	for _, c := range containers {
		if container, ok := c.(map[string]any); ok {
			later(container, "state", "running", "startedAt")
		}
	}
	return latest
}
