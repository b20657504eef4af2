package eventbus

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/purge"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/snapshot"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

const subscriptionCRD = "subscriptions.eventing.kyma-project.io"

var (
	crdResource    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	busTriggers    = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1alpha1", Resource: "triggers"}
	busDeliveries  = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "subscriptions"}
	busChannelKind = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "channels"}
)

// leftovers is a cluster in which the release event-bus has been removed.
type leftovers struct {
	client     kubernetes.Interface
	dynamic    dynamic.Interface
	definition *unstructured.Unstructured
	objects    []*unstructured.Unstructured
}

func newLeftovers(t *testing.T) *leftovers {
	t.Helper()
	ctx := t.Context()
	l := &leftovers{}
	var err error
	if l.client, err = kubernetes.NewForConfig(cluster.Config()); err != nil {
		t.Fatal(err)
	}
	if l.dynamic, err = dynamic.NewForConfig(cluster.Config()); err != nil {
		t.Fatal(err)
	}
	if l.definition, err = l.dynamic.Resource(cluster.CRDs()).Get(ctx, subscriptionCRD, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	created, deleted := standin.BusChannel("v1alpha1", "commerce", "order.created"), standin.BusChannel("v1alpha1", "commerce", "deleted")
	l.objects = []*unstructured.Unstructured{
		created, deleted, standin.BusSubscription(created, "shop", "on-order"), standin.BusSubscription(deleted, "shop", "on-delete"),
		standin.EventActivation("shop", "orders", "commerce"), standin.EventActivation("shop", "payments", "commerce"),
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		l.reset(ctx, t)
		for _, obj := range l.objects {
			client := l.dynamic.Resource(obj.GroupVersionKind().GroupVersion().WithResource(strings.ToLower(obj.GetKind()) + "s")).Namespace(obj.GetNamespace())
			_ = client.Delete(ctx, obj.GetName(), metav1.DeleteOptions{})
			_, _ = client.Patch(ctx, obj.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
	})
	return l
}

func (l *leftovers) reset(ctx context.Context, t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := standin.ResetLeftovers(ctx, cluster.Config(), l.definition, l.objects...); err != nil {
		t.Fatal(err)
	}
}

func (l *leftovers) done(ctx context.Context, t testing.TB) {
	t.Helper()
	for _, gvr := range []schema.GroupVersionResource{busChannelKind, busDeliveries} {
		list, err := l.dynamic.Resource(gvr).Namespace(standin.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "kyma-source-id"})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) > 0 {
			t.Errorf("%d %s are left", len(list.Items), gvr.Resource)
		}
	}
	for _, name := range []string{"orders", "payments"} {
		obj, err := l.dynamic.Resource(standin.EventActivations).Namespace("shop").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if f := obj.GetFinalizers(); len(f) > 0 {
			t.Errorf("EventActivation %s has the finalizers %q", name, f)
		}
	}
	if _, err := l.dynamic.Resource(crdResource).Get(ctx, subscriptionCRD, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the definition is still there: %v", err)
	}
}

// run runs the job in this process, with some of its boolean flags set.
func (l *leftovers) run(t *testing.T, command string, flags ...string) *migration.Report {
	t.Helper()
	return l.runAt(t, cluster.Config(), command, flags...)
}

// runAt is run through another way to the API server.
func (l *leftovers) runAt(t *testing.T, cfg *rest.Config, command string, flags ...string) *migration.Report {
	t.Helper()
	e, err := engine.New(cfg, engine.Options{
		Names:          cli.Names,
		StateNamespace: kyma.StateNamespace,
		Identity:       fmt.Sprintf("test-%d", time.Now().UnixNano()), LeaseDuration: time.Second,
		Timeout: time.Minute, Log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)),
	})
	if err != nil {
		t.Fatal(err)
	}
	job := purge.New()
	for _, s := range job.Settings() {
		for _, flag := range flags {
			if b, ok := s.Value.(*bool); ok && flag == s.Name {
				*b = true
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

func (l *leftovers) snapshot(t *testing.T) snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.Stable(t.Context(), cluster.Config(), snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (l *leftovers) unchanged(t *testing.T, before snapshot.Snapshot) {
	t.Helper()
	if diff := snapshot.Diff(before, l.snapshot(t)); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

func TestPurge(t *testing.T) {
	l := newLeftovers(t)
	ctx := t.Context()
	subs := l.dynamic.Resource(standin.KymaSubscriptions).Namespace("shop")

	t.Run("InUse", func(t *testing.T) {
		l.reset(ctx, t)
		if _, err := subs.Create(ctx, standin.KymaSubscription("shop", "last", "commerce", "order.created"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		before := l.snapshot(t)
		const said = "Subscription shop/last: it is a Kyma Subscription, which only the Event Bus serves"
		for _, tc := range []struct {
			command string
			flags   []string
			result  migration.Result
			exit    int
		}{
			{"run", []string{"yes"}, migration.Refused, migration.ExitRefused},
			{"plan", []string{"fail-if-in-use"}, migration.Refused, migration.ExitRefused},
			{"plan", nil, migration.Planned, migration.ExitOK},
		} {
			r := l.run(t, tc.command, tc.flags...)
			want(t, r, tc.result, tc.exit)
			if !strings.Contains(problems(r), said) {
				t.Errorf("%s %v: not said:\n%s", tc.command, tc.flags, problems(r))
			}
			l.unchanged(t, before)
		}
		if _, err := subs.Patch(ctx, "last", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := subs.Delete(ctx, "last", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("InUseByAnythingElse", func(t *testing.T) {
		l.reset(ctx, t)
		record := standin.TillerRelease("event-bus", "kyma-system", 3, "DEPLOYED", "---\n")
		helm3 := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "sh.helm.release.v1.event-bus.v1", Labels: map[string]string{
				"owner": "helm", "name": "event-bus", "version": "1", "status": "deployed",
			}}, Type: "helm.sh/release.v1",
		}
		trigger := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "eventing.knative.dev/v1alpha1", "kind": "Trigger", "metadata": map[string]any{"namespace": "shop", "name": "t"},
			"spec": map[string]any{"broker": "default", "filter": map[string]any{}, "subscriber": map[string]any{"uri": "http://fn.shop"}},
		}}
		if err := standin.ResetEventBus(ctx, cluster.Config()); err != nil {
			t.Fatal(err)
		}
		if err := standin.Load(ctx, cluster.Config(), record); err != nil {
			t.Fatal(err)
		}
		if _, err := l.client.CoreV1().Secrets("kyma-system").Create(ctx, helm3, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.dynamic.Resource(busTriggers).Namespace("shop").Create(ctx, trigger, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r := l.run(t, "run", "yes")
		want(t, r, migration.Refused, migration.ExitRefused)
		for _, part := range []string{
			"helm delete --purge --tls event-bus", "helm uninstall event-bus --namespace kyma-system",
			"Deployment kyma-system/event-bus-event-publish-service: it is a part of the Event Bus, and not at 0 replicas",
			"it is a pod of the Event Bus", "Trigger shop/t: it is not ready",
		} {
			if !strings.Contains(problems(r), part) {
				t.Errorf("not said: %s\n%s", part, problems(r))
			}
		}
		_ = l.client.CoreV1().ConfigMaps("kube-system").Delete(ctx, record.GetName(), metav1.DeleteOptions{})
		_ = l.client.CoreV1().Secrets("kyma-system").Delete(ctx, helm3.Name, metav1.DeleteOptions{})
		_ = l.dynamic.Resource(busTriggers).Namespace("shop").Delete(ctx, "t", metav1.DeleteOptions{})
		for _, d := range standin.EventBus() {
			err := l.client.AppsV1().Deployments("kyma-system").Delete(ctx, d.GetName(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)})
			if err != nil {
				t.Error(err)
			}
		}
		// The pods of a Deployment that is gone count, until they are, too.
		eventually(t, "nothing is in use", func(context.Context) error {
			if r := l.run(t, "plan", "fail-if-in-use"); r.ExitCode() != migration.ExitOK {
				return fmt.Errorf("exit code %d:\n%s", r.ExitCode(), problems(r))
			}
			return nil
		})
	})

	t.Run("OnlyWhenToldTo", func(t *testing.T) {
		l.reset(ctx, t)
		before := l.snapshot(t)
		r := l.run(t, "run")
		want(t, r, migration.Refused, migration.ExitRefused)
		if !strings.Contains(problems(r), "eventmesh-migrate run --job=eventbus-purge --eventbus-purge.yes") {
			t.Errorf("the command is missing:\n%s", problems(r))
		}
		l.unchanged(t, before)
	})

	t.Run("PurgeAndUndo", func(t *testing.T) {
		l.reset(ctx, t)
		before := l.snapshot(t)
		want(t, l.run(t, "run", "yes"), migration.Succeeded, migration.ExitOK)
		l.done(ctx, t)
		again := l.run(t, "run", "yes")
		want(t, again, migration.NothingToDo, migration.ExitOK)
		if again.Requests.Writes != 0 {
			t.Errorf("a second run wrote %d times", again.Requests.Writes)
		}
		want(t, l.run(t, "undo"), migration.Succeeded, migration.ExitOK)
		diff, err := snapshot.AwaitEqual(ctx, cluster.Config(), before, snapshot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff != "" {
			t.Errorf("undo did not bring everything back:\n%s", diff)
		}
	})

	t.Run("ANamespaceCanBeDeletedAgain", func(t *testing.T) {
		l.reset(ctx, t)
		if _, err := l.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "leaving"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		hangs := []*unstructured.Unstructured{
			standin.EventActivation("leaving", "orders", "commerce"), standin.KymaSubscription("leaving", "on-order", "commerce", "order.created"),
		}
		if err := standin.ResetLeftovers(ctx, cluster.Config(), l.definition, hangs...); err != nil {
			t.Fatal(err)
		}
		if err := l.client.CoreV1().Namespaces().Delete(ctx, "leaving", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		// The namespace controller has done its part when it says what is left. That of
		// Kubernetes 1.16 has no condition for it, but has asked all objects to go.
		eventually(t, "the namespace controller has done its part", func(ctx context.Context) error {
			ns, err := l.client.CoreV1().Namespaces().Get(ctx, "leaving", metav1.GetOptions{})
			if err != nil {
				return poll.Stop(fmt.Errorf("it must hang: %w", err))
			}
			if cluster.Lacks("conditions of namespaces", 17) != nil {
				for _, obj := range hangs {
					gvr := obj.GroupVersionKind().GroupVersion().WithResource(strings.ToLower(obj.GetKind()) + "s")
					live, err := l.dynamic.Resource(gvr).Namespace("leaving").Get(ctx, obj.GetName(), metav1.GetOptions{})
					if err != nil {
						return poll.Stop(fmt.Errorf("it must hang: %w", err))
					}
					if live.GetDeletionTimestamp() == nil {
						return fmt.Errorf("%s %s was not asked to go", obj.GetKind(), obj.GetName())
					}
				}
				return nil
			}
			for _, c := range ns.Status.Conditions {
				if c.Type == corev1.NamespaceFinalizersRemaining && c.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("its conditions are %v", ns.Status.Conditions)
		})
		want(t, l.run(t, "run", "yes"), migration.Succeeded, migration.ExitOK)
		l.done(ctx, t)
		eventually(t, "the namespace is gone", func(ctx context.Context) error {
			_, err := l.client.CoreV1().Namespaces().Get(ctx, "leaving", metav1.GetOptions{})
			return poll.Gone(err)
		})

		// An undo names the objects that are gone for good, and restores all others.
		r := l.run(t, "undo")
		want(t, r, migration.PartlyRestored, migration.ExitPartlyRestored)
		for _, part := range []string{
			"EventActivation leaving/orders: not restored: ", "Subscription leaving/on-order: not restored: ", "this change cannot be undone",
		} {
			if !strings.Contains(problems(r), part) {
				t.Errorf("not said: %s\n%s", part, problems(r))
			}
		}
		if _, err := l.dynamic.Resource(crdResource).Get(ctx, subscriptionCRD, metav1.GetOptions{}); err != nil {
			t.Errorf("the definition is not back: %v", err)
		}
	})

	t.Run("ANewerControllerOwnsTheKind", func(t *testing.T) {
		l.reset(ctx, t)
		set := func(versions []any) {
			t.Helper()
			patch, err := (&unstructured.Unstructured{Object: map[string]any{"kind": "x", "spec": map[string]any{"versions": versions}}}).MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			patch = []byte(strings.Replace(string(patch), `"kind":"x",`, "", 1))
			if _, err := l.dynamic.Resource(cluster.CRDs()).Patch(ctx, subscriptionCRD, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		versions, _, err := unstructured.NestedSlice(l.definition.Object, "spec", "versions")
		if err != nil {
			t.Fatal(err)
		}
		set(append(versions, map[string]any{
			"name": "v1alpha2", "served": true, "storage": false,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}))
		r := l.run(t, "run", "yes")
		want(t, r, migration.Succeeded, migration.ExitOK)
		if !strings.Contains(problems(r), "kept: it serves v1alpha2") {
			t.Errorf("not said:\n%s", problems(r))
		}
		if _, err := l.dynamic.Resource(crdResource).Get(ctx, subscriptionCRD, metav1.GetOptions{}); err != nil {
			t.Fatalf("it must stay: %v", err)
		}
		set(versions)
	})
}

// eventually waits until it holds; half a minute is for a busy machine.
func eventually(t testing.TB, what string, holds func(context.Context) error) {
	t.Helper()
	poll.Until(t, 30*time.Second, what, holds)
}

// guard is a policy that denies the deletion of the definition while it is bound:
// the run fails at its last change, and the definition itself is not touched.
const guard = "no-deletion-of-definitions"

func (l *leftovers) guard(t *testing.T) {
	t.Helper()
	if cluster.Lacks("ValidatingAdmissionPolicy", 30) != nil {
		return // bind says it, to the tests that need it
	}
	ctx := t.Context()
	policies := l.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	_, err := policies.Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: guard},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Delete},
				Rule:       admissionv1.Rule{APIGroups: []string{"apiextensions.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"customresourcedefinitions"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: `false`, Message: "it is held"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = policies.Delete(context.WithoutCancel(ctx), guard, metav1.DeleteOptions{}) })
}

// bind puts the policy into force, or out of it, and waits until it is.
func (l *leftovers) bind(ctx context.Context, t testing.TB, force bool) {
	t.Helper()
	if err := cluster.Lacks("ValidatingAdmissionPolicy", 30); err != nil {
		t.Skip(err)
	}
	bindings := l.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	var err error
	if force {
		_, err = bindings.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: guard},
			Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: guard, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
		}, metav1.CreateOptions{})
	} else {
		err = bindings.Delete(ctx, guard, metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("the policy is in force: %t", force), func(ctx context.Context) error {
		err := l.dynamic.Resource(crdResource).Delete(ctx, "brokers.eventing.knative.dev", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if (err != nil) != force {
			return fmt.Errorf("a deletion ends with: %v", err) //nolint:errorlint // none may be what is wrong
		}
		return nil
	})
}

func TestPurgeSuite(t *testing.T) { suite.Quick(t, purgeSubject(t)) }

// purgeSubject is the job, for what every job has to pass.
func purgeSubject(t *testing.T) suite.Subject {
	t.Helper()
	l := newLeftovers(t)
	l.reset(t.Context(), t)
	l.guard(t)
	return suite.Subject{
		Name: "eventbus-purge", Package: "./cmd/eventbus-purge", Args: []string{"--yes"},
		Kubeconfig: cluster.Kubeconfig, Admin: cluster.Config(), Audit: cluster,
		Reset: l.reset, Done: l.done,
		Break: func(ctx context.Context, t testing.TB) func() {
			l.bind(ctx, t, true)
			return func() { l.bind(context.WithoutCancel(ctx), t, false) }
		},
	}
}
