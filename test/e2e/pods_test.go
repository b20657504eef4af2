//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/eventingcluster"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// workload is the program of test/e2e/workload in an image.
const workload = eventingcluster.Workload

// await watches one object until it is as wanted.
func await(ctx context.Context, client rest.Interface, resource, namespace, name string, object runtime.Object, holds func(runtime.Object) bool) error {
	lw := cache.NewListWatchFromClient(client, resource, namespace, fields.OneTermEqualSelector("metadata.name", name))
	_, err := watchtools.UntilWithSync(ctx, lw, object, nil, func(e watch.Event) (bool, error) {
		return e.Type != watch.Deleted && holds(e.Object), nil
	})
	if err != nil {
		return fmt.Errorf("cannot wait for %s %s/%s: %w", resource, namespace, name, err)
	}
	return nil
}

// rolledOut waits until a Deployment has its pods, all of its last version and available.
func (c *cluster) rolledOut(t *testing.T, namespace, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := await(ctx, c.client.AppsV1().RESTClient(), "deployments", namespace, name, &appsv1.Deployment{}, func(o runtime.Object) bool {
		d, ok := o.(*appsv1.Deployment)
		return ok && d.Status.ObservedGeneration == d.Generation && d.Status.Replicas == *d.Spec.Replicas &&
			d.Status.UpdatedReplicas == *d.Spec.Replicas && d.Status.AvailableReplicas == *d.Spec.Replicas
	}); err != nil {
		t.Fatalf("%v\n%s", err, c.describe(namespace))
	}
}

// describe tells, for messages, how the pods of a namespace are.
func (c *cluster) describe(namespace string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var said strings.Builder
	for i := range pods.Items {
		pod := &pods.Items[i]
		fmt.Fprintf(&said, "Pod %s/%s: %s\n", namespace, pod.Name, pod.Status.Phase)
		for _, status := range pod.Status.ContainerStatuses {
			fmt.Fprintf(&said, "  %s: ready %t, %d restarts, %+v\n", status.Name, status.Ready, status.RestartCount, status.State)
		}
	}
	return said.String()
}

// create creates objects of any kind that test/standin knows.
func (c *cluster) create(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	if err := standin.Load(t.Context(), c.Config(), objects...); err != nil {
		t.Fatal(err)
	}
}

// namespaces creates those that are not there.
func (c *cluster) namespaces(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// service puts a Service in front of the pods of a label "app".
func (c *cluster) service(t *testing.T, namespace, name, app string, port, target int) {
	t.Helper()
	_, err := c.client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": app},
			Ports:    []corev1.ServicePort{{Name: "http", Port: int32(port), TargetPort: intstr.FromInt(target)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// relay runs a pod that hands on to a URL whatever comes to the Service of its name at the port.
func (c *cluster) relay(t *testing.T, namespace, name string, port int, url string) {
	t.Helper()
	deployment, service := eventingcluster.Relay(c.image(t, workload), namespace, name, int32(port), url)
	_, err := c.client.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{})
	if err == nil {
		_, err = c.client.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// jobAccount may do everything. What each job needs, and no more, is proved where charts and RBAC are.
const jobAccount = "e2e"

// run runs a job of the migration as its charts do, in a Job of its own, from its image and without a second try, and
// returns the report and the exit code. The command is run unless the first argument says otherwise.
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

// logs returns what the pods of a selector have said.
func logs(client kubernetes.Interface, namespace, selector string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err.Error()
	}
	var said strings.Builder
	for _, pod := range pods.Items {
		fmt.Fprintf(&said, "Pod %s/%s: %s\n", namespace, pod.Name, pod.Status.Phase)
		stream, err := client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			fmt.Fprintln(&said, err)
			continue
		}
		if _, err := io.Copy(&said, stream); err != nil {
			fmt.Fprintln(&said, err)
		}
		_ = stream.Close()
	}
	return said.String()
}
