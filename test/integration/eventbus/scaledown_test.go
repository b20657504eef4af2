package eventbus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/scaledown"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/snapshot"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// eventBus is a cluster with the Event Bus, and real Deployments. There is no
// node: pods stay pending, and go at once when they are deleted, unless a
// finalizer holds them.
type eventBus struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
}

func newEventBus(t *testing.T) *eventBus {
	t.Helper()
	ctx := t.Context()
	var err error
	b := &eventBus{}
	if b.client, err = kubernetes.NewForConfig(cluster.Config()); err != nil {
		t.Fatal(err)
	}
	if b.dynamic, err = dynamic.NewForConfig(cluster.Config()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		b.free(ctx, t)
		for _, name := range []string{standin.Publisher, standin.SubscriptionController} {
			_ = b.client.AppsV1().Deployments(standin.SystemNamespace).Delete(ctx, name, metav1.DeleteOptions{})
		}
		_ = b.dynamic.Resource(standin.EventActivations).Namespace("shop").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		for _, name := range []string{"orders", "payments"} {
			_, _ = b.dynamic.Resource(standin.EventActivations).Namespace("shop").Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
	})
	return b
}

func (b *eventBus) reset(ctx context.Context, t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := standin.ResetEventBus(ctx, cluster.Config(),
		standin.EventActivation("shop", "orders", "commerce"), standin.EventActivation("shop", "payments", "commerce"))
	if err != nil {
		t.Fatal(err)
	}
}

// replicas returns spec.replicas of publisher and controller, and how many pods
// there are.
func (b *eventBus) replicas(ctx context.Context, t testing.TB) (publisher, controller int32, pods int) {
	t.Helper()
	of := func(name string) int32 {
		d, err := b.client.AppsV1().Deployments(standin.SystemNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return *d.Spec.Replicas
	}
	return of(standin.Publisher), of(standin.SubscriptionController), len(b.pods(ctx, t, ""))
}

// pods returns those of the Event Bus, or of one half of it.
func (b *eventBus) pods(ctx context.Context, t testing.TB, name string) []corev1.Pod {
	t.Helper()
	selector := "app.kubernetes.io/instance=event-bus"
	if name != "" {
		selector += ",app.kubernetes.io/name=" + strings.TrimPrefix(name, "event-bus-")
	}
	list, err := b.client.CoreV1().Pods(standin.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// hold puts a finalizer on a pod of the Deployment: it will stay terminating.
func (b *eventBus) hold(ctx context.Context, t testing.TB, name string) {
	t.Helper()
	pod := b.pods(ctx, t, name)[0].Name
	_, err := b.client.CoreV1().Pods(standin.SystemNamespace).Patch(ctx, pod, types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// free lets all held pods go.
func (b *eventBus) free(ctx context.Context, t testing.TB) {
	t.Helper()
	for _, pod := range b.pods(ctx, t, "") {
		if len(pod.Finalizers) > 0 {
			_, _ = b.client.CoreV1().Pods(standin.SystemNamespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
	}
}

func (b *eventBus) finalizers(ctx context.Context, t testing.TB, name string) []string {
	t.Helper()
	obj, err := b.dynamic.Resource(standin.EventActivations).Namespace("shop").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj.GetFinalizers()
}

func (b *eventBus) done(ctx context.Context, t testing.TB) {
	t.Helper()
	if p, c, pods := b.replicas(ctx, t); p != 0 || c != 0 || pods != 0 {
		t.Errorf("replicas %d and %d, %d pods; want none", p, c, pods)
	}
	for _, name := range []string{"orders", "payments"} {
		if f := b.finalizers(ctx, t, name); len(f) > 0 {
			t.Errorf("EventActivation %s has still the finalizers %q", name, f)
		}
	}
}

// run runs the job in this process.
func (b *eventBus) run(t *testing.T, command string, change func(*engine.Options), flags ...string) *migration.Report {
	t.Helper()
	return b.runThrough(t, cluster.Config(), command, change, flags...)
}

// runThrough runs the job with its own way to the API server.
func (b *eventBus) runThrough(t *testing.T, config *rest.Config, command string, change func(*engine.Options), flags ...string) *migration.Report {
	t.Helper()
	o := engine.Options{
		Names:          cli.Names,
		StateNamespace: kyma.StateNamespace,
		Identity:       fmt.Sprintf("test-%d", time.Now().UnixNano()), LeaseDuration: time.Second,
		Timeout: time.Minute, Log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)),
	}
	if change != nil {
		change(&o)
	}
	e, err := engine.New(config, o)
	if err != nil {
		t.Fatal(err)
	}
	job := scaledown.New()
	for _, s := range job.Settings() {
		for _, flag := range flags {
			name, value, _ := strings.Cut(flag, "=")
			if d, err := time.ParseDuration(value); name == s.Name && err == nil {
				*s.Value.(*time.Duration) = d
			}
		}
	}
	switch command {
	case "plan":
		return e.Plan(t.Context(), job)
	case "undo":
		return e.Undo(t.Context(), job)
	default:
		return e.Run(t.Context(), job)
	}
}

func TestScaleDown(t *testing.T) {
	b := newEventBus(t)
	ctx := t.Context()
	up := func(t *testing.T) {
		t.Helper()
		if p, c, _ := b.replicas(ctx, t); p != 2 || c != 1 {
			t.Errorf("replicas are %d and %d, want 2 and 1 again", p, c)
		}
		for _, name := range []string{"orders", "payments"} {
			if f := b.finalizers(ctx, t, name); !slices.Equal(f, []string{standin.BusFinalizer}) {
				t.Errorf("EventActivation %s has the finalizers %q", name, f)
			}
		}
	}

	t.Run("DownAndUndone", func(t *testing.T) {
		b.reset(ctx, t)
		before, err := snapshot.Stable(ctx, cluster.Config(), snapshot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := b.run(t, "run", nil)
		want(t, r, migration.Succeeded, migration.ExitOK)
		b.done(ctx, t)
		again := b.run(t, "run", nil)
		want(t, again, migration.NothingToDo, migration.ExitOK)
		if again.Requests.Writes != 0 {
			t.Errorf("a second run wrote %d times", again.Requests.Writes)
		}
		want(t, b.run(t, "undo", nil), migration.Succeeded, migration.ExitOK)
		up(t)
		// Nothing is left of it, not on the ReplicaSets either.
		diff, err := snapshot.AwaitEqual(ctx, cluster.Config(), before, snapshot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff != "" {
			t.Errorf("undo did not bring everything back:\n%s", diff)
		}
	})

	t.Run("AStuckPodOfEither", func(t *testing.T) {
		for _, name := range []string{standin.Publisher, standin.SubscriptionController} {
			b.reset(ctx, t)
			b.hold(ctx, t, name)
			// Two failed runs in a row: the second must not find its own 0.
			for range 2 {
				began := time.Now()
				r := b.run(t, "run", nil, "pods-timeout=5s")
				want(t, r, migration.RolledBack, migration.ExitFailed)
				if time.Since(began) < 5*time.Second {
					t.Error("it did not wait for the pod")
				}
				if !strings.Contains(problems(r), `is terminating and has the finalizers ["example.com/hold"]`) {
					t.Errorf("the pod has no name:\n%s", problems(r))
				}
				up(t)
			}
			b.free(ctx, t)
			want(t, b.run(t, "run", nil), migration.Succeeded, migration.ExitOK)
			b.done(ctx, t)
		}
	})

	t.Run("RefusedAtEachWrite", func(t *testing.T) {
		// The API server refuses one write of a run, the first, then the second, and so on; what
		// comes after succeeds.
		const most = 30
		for n := 1; ; n++ {
			b.reset(ctx, t)
			proxy, err := faultproxy.Start(cluster.Config())
			if err != nil {
				t.Fatal(err)
			}
			var at faultproxy.Request
			// Renewals come when they come.
			var mu sync.Mutex
			writes := 0
			proxy.Use(func(_ context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
				mu.Lock()
				counts := r.Writes() && !r.Renews && !r.DryRun && r.Resource != "leases"
				if counts {
					writes++
				}
				refuse := counts && writes == n
				if refuse {
					at = r
				}
				mu.Unlock()
				if refuse {
					return faultproxy.Answer(metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "refused by the test"}, -1), nil
				}
				return next()
			})
			r := b.runThrough(t, proxy.Config(), "run", nil)
			proxy.Close()
			if at.Verb == "" {
				want(t, r, migration.Succeeded, migration.ExitOK)
				b.done(ctx, t)
				t.Logf("a run makes %d writes", n-1)
				break
			}
			t.Logf("refused %s: %s", at, r.Result)
			switch r.Result {
			case migration.RolledBack, migration.FailedResult, migration.Refused:
				up(t)
			case migration.Succeeded:
				// What is told of a run does not decide about it.
				if at.Is("deployments", "patch") || at.Is("eventactivations", "patch") {
					t.Errorf("it succeeded without %s", at)
				}
				b.done(ctx, t)
			default:
				want(t, r, migration.RolledBack, migration.ExitFailed)
			}
			if n == most {
				t.Fatalf("more than %d writes", most)
			}
		}
	})

	t.Run("AnUpgradeScalesItUpAgain", func(t *testing.T) {
		b.reset(ctx, t)
		want(t, b.run(t, "run", nil), migration.Succeeded, migration.ExitOK)
		// Runs are told apart by the second in which they began.
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		patch := []byte(`{"spec":{"replicas":3}}`)
		if _, err := b.client.AppsV1().Deployments(standin.SystemNamespace).Patch(ctx, standin.Publisher, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		r := b.run(t, "run", nil)
		want(t, r, migration.Succeeded, migration.ExitOK)
		if !strings.Contains(problems(r), "an earlier run scaled it from 2 to 0, and it is at 3 again") {
			t.Errorf("not said:\n%s", problems(r))
		}
		b.done(ctx, t)
		want(t, b.run(t, "undo", nil), migration.Succeeded, migration.ExitOK)
		if p, c, _ := b.replicas(ctx, t); p != 3 || c != 0 {
			t.Errorf("undo brings back what that run found, 3 and 0: %d and %d", p, c)
		}
	})

	t.Run("ScaledUpWhileItWaits", func(t *testing.T) {
		b.reset(ctx, t)
		b.hold(ctx, t, standin.Publisher)
		w, err := b.client.AppsV1().Deployments(standin.SystemNamespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + standin.Publisher})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		go func() {
			for event := range w.ResultChan() {
				d, ok := event.Object.(*appsv1.Deployment)
				if ok && *d.Spec.Replicas == 0 && d.Status.ObservedGeneration == d.Generation {
					// Nothing outside shows that the job has seen it, too.
					time.Sleep(3 * time.Second)
					_, _ = b.client.AppsV1().Deployments(standin.SystemNamespace).Patch(ctx, d.Name, types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{})
					return
				}
			}
		}()
		r := b.run(t, "run", nil, "pods-timeout=30s")
		want(t, r, migration.RolledBack, migration.ExitFailed)
		if p, c, _ := b.replicas(ctx, t); p != 5 || c != 1 || !strings.Contains(problems(r), "somebody scaled it up again, to 5") {
			t.Errorf("what somebody else set stays, and is said: %d and %d\n%s", p, c, problems(r))
		}
		b.free(ctx, t)
	})

	// Fails on the commit before: the subscription-controller was scaled down under the
	// Subscription, whose deletion would have hung for ever.
	t.Run("NeededAgainWhileItWaits", func(t *testing.T) {
		b.reset(ctx, t)
		b.hold(ctx, t, standin.Publisher)
		subs := b.dynamic.Resource(standin.KymaSubscriptions).Namespace("shop")
		w, err := b.client.AppsV1().Deployments(standin.SystemNamespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + standin.Publisher})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		made := make(chan error, 1)
		go func() {
			for event := range w.ResultChan() {
				d, ok := event.Object.(*appsv1.Deployment)
				if ok && *d.Spec.Replicas == 0 && d.Status.ObservedGeneration == d.Generation {
					_, err := subs.Create(ctx, standin.KymaSubscription("shop", "late", "commerce", "order.created"), metav1.CreateOptions{})
					b.free(ctx, t)
					made <- err
					return
				}
			}
		}()
		r := b.run(t, "run", nil, "pods-timeout=30s")
		if err := <-made; err != nil {
			t.Fatal(err)
		}
		want(t, r, migration.DeferredResult, migration.ExitOK)
		if p, c, _ := b.replicas(ctx, t); p != 0 || c != 1 {
			t.Errorf("replicas are %d and %d, want 0 and 1", p, c)
		}
		for _, part := range []string{
			"Deployment kyma-system/" + standin.SubscriptionController + ": left as it is: the Event Bus keeps running, because 1 Kyma Subscription is left: shop/late",
			"kubectl -n kyma-system scale deployment " + standin.Publisher + " --replicas=2",
			"EventActivation shop/orders: its finalizer " + standin.BusFinalizer + " stays",
		} {
			if !strings.Contains(problems(r), part) {
				t.Errorf("not said: %s\n%s", part, problems(r))
			}
		}
		want(t, b.run(t, "undo", nil), migration.Succeeded, migration.ExitOK)
		up(t)
		if _, err := subs.Patch(ctx, "late", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := subs.Delete(ctx, "late", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})

	// Fails on the commit before: the patch wrote the whole list as the plan had read it.
	t.Run("AFinalizerOfOthersStays", func(t *testing.T) {
		b.reset(ctx, t)
		proxy, err := faultproxy.Start(cluster.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer proxy.Close()
		var once sync.Once
		proxy.Use(func(ctx context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
			if r.Is("eventactivations", "patch") {
				once.Do(func() {
					// The order of entries is nobody's business: this one comes first.
					patch := []byte(`{"metadata":{"finalizers":["example.com/late","` + standin.BusFinalizer + `"]}}`)
					if _, err := b.dynamic.Resource(standin.EventActivations).Namespace("shop").Patch(ctx, "orders", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
						t.Error(err)
					}
				})
			}
			return next()
		})
		want(t, b.runThrough(t, proxy.Config(), "run", nil), migration.Succeeded, migration.ExitOK)
		if f := b.finalizers(ctx, t, "orders"); !slices.Equal(f, []string{"example.com/late"}) {
			t.Errorf("the finalizers are %q", f)
		}
		want(t, b.run(t, "undo", nil), migration.Succeeded, migration.ExitOK)
		f := b.finalizers(ctx, t, "orders")
		slices.Sort(f)
		if !slices.Equal(f, []string{standin.BusFinalizer, "example.com/late"}) {
			t.Errorf("the finalizers after undo are %q", f)
		}
	})

	t.Run("DeferredWhileItIsUsed", func(t *testing.T) {
		b.reset(ctx, t)
		if err := standin.Load(ctx, cluster.Config(), standin.Application("commerce", false), standin.EventService("commerce", false)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx := context.WithoutCancel(ctx)
			_ = b.dynamic.Resource(standin.Applications).Delete(ctx, "commerce", metav1.DeleteOptions{})
			_ = b.client.AppsV1().Deployments(standin.IntegrationNamespace).Delete(ctx, "commerce-event-service", metav1.DeleteOptions{})
		})
		sub := standin.KymaSubscription("shop", "on-order", "commerce", "order.created")
		subs := b.dynamic.Resource(standin.KymaSubscriptions).Namespace("shop")
		if _, err := subs.Create(ctx, sub, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r := b.run(t, "run", nil)
		want(t, r, migration.DeferredResult, migration.ExitOK)
		for _, part := range []string{
			"deferred: Application commerce: the Event Bus keeps running, because event-service commerce-event-service is not switched to the mesh: it does not carry --eventMeshURL",
			"deferred: the Event Bus keeps running, because 1 Kyma Subscription is left: shop/on-order",
		} {
			if !strings.Contains(problems(r), part) {
				t.Errorf("not said: %s\n%s", part, problems(r))
			}
		}
		fail := func(o *engine.Options) { o.Defer = engine.DeferFail }
		want(t, b.run(t, "run", fail), migration.FailedResult, migration.ExitFailed)
		up(t)

		label := []byte(`{"metadata":{"labels":{"eventmesh-migration.kyma-project.io/skip":"true"}}}`)
		if _, err := b.dynamic.Resource(standin.Applications).Patch(ctx, "commerce", types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := subs.Patch(ctx, "on-order", types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		want(t, b.run(t, "run", fail), migration.NothingToDo, migration.ExitOK)
		up(t)

		// The switch: the Deployment carries the flag, but its former pod is held.
		if _, err := subs.Patch(ctx, "on-order", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := subs.Delete(ctx, "on-order", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.switchEventService(ctx, t, "commerce")
		want(t, b.run(t, "run", nil), migration.Succeeded, migration.ExitOK)
		b.done(ctx, t)
	})

	t.Run("RefusedWhileTheStockMigrationRuns", func(t *testing.T) {
		b.reset(ctx, t)
		name := "event-bus-mesh-namespaces-migration-mesh-namespaces-migration"
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}}}
		jobs := b.client.BatchV1().Jobs(standin.SystemNamespace)
		if _, err := jobs.Create(ctx, job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r := b.run(t, "run", nil)
		want(t, r, migration.Refused, migration.ExitRefused)
		if !strings.Contains(problems(r), "kubectl -n kyma-system delete job "+name) {
			t.Errorf("the command is missing:\n%s", problems(r))
		}
		up(t)
		if err := jobs.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
			t.Fatal(err)
		}
		want(t, b.run(t, "run", nil), migration.Succeeded, migration.ExitOK)
	})

	t.Run("AnAutoscalerIsReported", func(t *testing.T) {
		b.reset(ctx, t)
		// v1 is what every Kubernetes serves.
		hpas := b.client.AutoscalingV1().HorizontalPodAutoscalers(standin.SystemNamespace)
		_, err := hpas.Create(ctx, &autoscalingv1.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "publisher"},
			Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: standin.Publisher}, MaxReplicas: 3,
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hpas.Delete(context.WithoutCancel(ctx), "publisher", metav1.DeleteOptions{}) })
		r := b.run(t, "plan", nil)
		want(t, r, migration.Planned, migration.ExitOK)
		if !strings.Contains(problems(r), "HorizontalPodAutoscaler kyma-system/publisher targets it") {
			t.Errorf("not said:\n%s", problems(r))
		}
		up(t)
	})
}

// switchEventService has the event-service post to the mesh, and waits until the
// Deployment controller has replaced its pod. Nothing runs the new pod: it is made
// available here.
func (b *eventBus) switchEventService(ctx context.Context, t *testing.T, app string) {
	t.Helper()
	name := app + "-event-service"
	fresh := standin.EventService(app, true)
	containers, _, _ := unstructured.NestedSlice(fresh.Object, "spec", "template", "spec", "containers")
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}})
	if err != nil {
		t.Fatal(err)
	}
	deployments := b.client.AppsV1().Deployments(standin.IntegrationNamespace)
	if _, err := deployments.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kubelet, err := node.StartKubelet(ctx, cluster.Config(), standin.IntegrationNamespace)
	if err != nil {
		t.Fatal(err)
	}
	defer kubelet.Stop()
	if err := kubelet.WaitRolledOut(ctx, name); err != nil {
		t.Fatal(err)
	}
}

func TestScaleDownSuite(t *testing.T) { suite.Quick(t, scaleDownSubject(t)) }

// scaleDownSubject is the job, for what every job has to pass.
func scaleDownSubject(t *testing.T) suite.Subject {
	t.Helper()
	b := newEventBus(t)
	return suite.Subject{
		Name: "eventbus-scaledown", Package: "./cmd/eventbus-scaledown", BrokenArgs: []string{"--pods-timeout=4s"},
		Kubeconfig: cluster.Kubeconfig, Admin: cluster.Config(), Audit: cluster,
		Reset: b.reset, Done: b.done,
		Break: func(ctx context.Context, t testing.TB) func() {
			b.hold(ctx, t, standin.SubscriptionController)
			return func() { b.free(context.WithoutCancel(ctx), t) }
		},
	}
}
