package k8sutil

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestPodStart(t *testing.T) {
	for _, tc := range []struct{ reason, pod, want string }{
		{"nothing is known but when it was created", `metadata: {creationTimestamp: "2020-01-01T00:00:00Z"}`, "2020-01-01T00:00:00Z"},
		{
			"a kubelet took it up", `{metadata: {creationTimestamp: "2020-01-01T00:00:00Z"}, status: {startTime: "2020-01-01T00:00:05Z"}}`,
			"2020-01-01T00:00:05Z",
		},
		{
			"a container was restarted", `{status: {startTime: "2020-01-01T00:00:05Z", containerStatuses: [` +
				`{state: {running: {startedAt: "2020-02-01T00:00:00Z"}}}, {state: {running: {startedAt: "2020-01-01T00:00:06Z"}}}]}}`,
			"2020-02-01T00:00:00Z",
		},
		{"a container does not run", `{status: {startTime: "2020-01-01T00:00:05Z", containerStatuses: [{state: {waiting: {reason: CrashLoopBackOff}}}]}}`, "2020-01-01T00:00:05Z"},
	} {
		pod := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(tc.pod), &pod.Object); err != nil {
			t.Fatal(err)
		}
		if got := PodStart(pod).UTC().Format(time.RFC3339); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}
