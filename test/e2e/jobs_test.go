//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// TestNode are the tests on the cluster without Knative, one after another: each relies on what the
// last has left alone.
func TestNode(t *testing.T) {
	inLane(t, &others)
	t.Run("AJobCallsTheAPI", aJobCallsTheAPI)
	t.Run("ScaleDown", scaleDown)
	t.Run("ScaleDownOfAStuckPod", scaleDownOfAStuckPod)
	t.Run("EventServiceVerify", eventServiceVerify)
}

// TestKnative are the tests beside the real Knative Eventing. The first of them wants Triggers all
// of which are ready, such as none.
func TestKnative(t *testing.T) {
	inLane(t, &others)
	t.Run("Purge", purge)
	t.Run("TriggerSync", triggerSync)
	t.Run("MeshIsSynchronous", meshIsSynchronous)
}

// jobAccount may do everything. What each job needs, and no more, is proved where charts and RBAC
// are.
const jobAccount = "e2e"

// run runs a job of the migration as its charts do, in a Job of its own, from its image and without
// a second try, and returns the report and the exit code. The command is run unless the first
// argument says otherwise.
func (c *cluster) run(t *testing.T, pkg string, args ...string) (*migration.Report, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c.namespaces(t, standin.SystemNamespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: jobAccount}}
	if _, err := c.client.CoreV1().ServiceAccounts(standin.SystemNamespace).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: jobAccount},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: standin.SystemNamespace, Name: jobAccount}},
	}
	if _, err := c.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}

	nonRoot, readOnly := true, true
	job, err := c.client.BatchV1().Jobs(standin.SystemNamespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: path.Base(pkg) + "-"},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: jobAccount,
				SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &nonRoot},
				Containers: []corev1.Container{{
					Name: "job", Image: c.image(t, pkg), Args: append(slices.Clone(args), "--output=json", "--log-level=error", "--lease-duration=3s"),
					SecurityContext: &corev1.SecurityContext{ReadOnlyRootFilesystem: &readOnly},
				}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	selector := "job-name=" + job.Name
	if err := await(ctx, c.client.BatchV1().RESTClient(), "jobs", job.Namespace, job.Name, &batchv1.Job{}, func(o runtime.Object) bool {
		j, ok := o.(*batchv1.Job)
		return ok && j.Status.Succeeded+j.Status.Failed > 0
	}); err != nil {
		t.Fatalf("%v\n%s", err, logs(c.client, job.Namespace, selector))
	}
	pods, err := c.client.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods of Job %s/%s, %v", len(pods.Items), job.Namespace, job.Name, err)
	}
	terminated := pods.Items[0].Status.ContainerStatuses[0].State.Terminated
	said := logs(c.client, job.Namespace, selector)
	report, err := reportIn(said)
	if err != nil || terminated == nil {
		t.Fatalf("%s %q: %v\n%s", path.Base(pkg), args, err, said)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s %q: exit code %d\n%s", path.Base(pkg), args, terminated.ExitCode, said)
		}
	})
	return report, int(terminated.ExitCode)
}

// reportIn finds the report among the lines of the log: the only object that takes more than one.
func reportIn(said string) (*migration.Report, error) {
	lines := strings.Split(said, "\n")
	begin := slices.Index(lines, "{")
	if begin < 0 {
		return nil, fmt.Errorf("there is no report")
	}
	end := slices.Index(lines[begin:], "}")
	if end < 0 {
		return nil, fmt.Errorf("the report has no end")
	}
	report := &migration.Report{}
	return report, json.Unmarshal([]byte(strings.Join(lines[begin:begin+end+1], "\n")), report)
}

// want checks how a command ended.
func want(t *testing.T, r *migration.Report, code int, result migration.Result, exit int) {
	t.Helper()
	if r.Result != result || code != exit {
		t.Fatalf("got result %s, exit code %d; want %s, %d: %s", r.Result, code, result, exit, r.Message)
	}
}

// problems are a report's findings, one a line.
func problems(r *migration.Report) string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, string(f.Severity)+": "+f.String())
	}
	return strings.Join(all, "\n")
}
