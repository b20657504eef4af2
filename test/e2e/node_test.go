//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// aJobCallsTheAPI shows what a job of the migration relies on in a cluster: its image holds one
// program, which runs as nobody, finds the API by its name, at its ClusterIP, and is let in with
// the token that was put into the pod.
func aJobCallsTheAPI(t *testing.T) {
	c := node(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	nonRoot := true
	job, err := c.client.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "api-"},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy:   corev1.RestartPolicyNever,
				SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &nonRoot},
				Containers:      []corev1.Container{{Name: "api", Image: c.image(t, workload), Args: []string{"api"}}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var status batchv1.JobStatus
	err = await(ctx, c.client.BatchV1().RESTClient(), "jobs", "default", job.Name, &batchv1.Job{}, func(o runtime.Object) bool {
		if j, ok := o.(*batchv1.Job); ok {
			status = j.Status
		}
		return status.Succeeded+status.Failed > 0
	})
	said := logs(c.client, "default", "job-name="+job.Name)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if status.Succeeded != 1 || !strings.Contains(said, "\nv1.") {
		t.Errorf("Job default/%s: got status %+v and output %q, want success and the server's version", job.Name, status, said)
	}
}
