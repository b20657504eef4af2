package httpsource

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/snapshot"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// subject is the job on a cluster with n missing HTTPSources, for the tests that
// every job has to pass.
func (p *plane) subject(t *testing.T, n int) suite.Subject {
	t.Helper()
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	last := standin.Names(n)[n-1]
	return suite.Subject{
		Name: "httpsource-sync", Package: "./cmd/httpsource-sync",
		BrokenArgs: []string{"--ready-timeout=1s"},
		Kubeconfig: p.Kubeconfig, Admin: p.Config(), Audit: p.ControlPlane,
		Reset: func(_ context.Context, t testing.TB) { p.reset(t, n) },
		Done: func(ctx context.Context, t testing.TB) {
			list, err := client.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != n {
				t.Errorf("%d HTTPSources, want %d", len(list.Items), n)
			}
			for _, source := range list.Items {
				if got, _, _ := unstructured.NestedString(source.Object, "spec", "source"); got != source.GetName() {
					t.Errorf("HTTPSource %s has the source %q", source.GetName(), got)
				}
			}
			p.ready(t, standin.Names(n)...)
		},
		Break: func(context.Context, testing.TB) func() {
			p.controllers.Break(standin.AdapterNeverReady, last)
			return p.controllers.HealAll
		},
	}
}

// TestSuite runs what every job has to pass, on clusters of both kinds beside each other.
func TestSuite(t *testing.T) {
	for _, version := range versions {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			s := on(t, version).subject(t, 4)
			t.Run("NoWriteWhenDone", func(t *testing.T) { suite.NoWriteWhenDone(t, s) })
			// What follows does not depend on what Knative serves: half of it here, half there.
			if version == kubernetes.KnativeV1alpha1 {
				t.Run("KillForward", func(t *testing.T) { suite.KillForward(t, s) })
				t.Run("KillRollback", func(t *testing.T) { suite.KillRollback(t, s) })
			} else {
				suite.Processes(t, s)
				t.Run("KillThenBack", func(t *testing.T) { suite.KillThenBack(t, s) })
				t.Run("KillUndo", func(t *testing.T) { suite.KillUndo(t, s) })
				t.Run("RandomFaults", func(t *testing.T) { suite.RandomFaults(t, s, 20200401, 5) })
			}
		})
	}
}

// TestFailureConditions lets the job fail in each way it must, and compares the
// whole cluster before and after, on clusters of both kinds beside each other.
func TestFailureConditions(t *testing.T) {
	apps := standin.Names(4)
	bad, old := apps[2], apps[0]
	cases := map[string]struct {
		reason string
		// old says whether the first Application has a ready HTTPSource before.
		old   bool
		fault func(p *plane, t *testing.T)
		// limit is enough for the controllers to come so far as they do; "": 1s.
		limit string
		// object is named by the finding, which contains says.
		object, says string
	}{
		"AdapterNotReady": {
			reason: "one that was created is not ready in time",
			fault:  func(p *plane, _ *testing.T) { p.controllers.Break(standin.AdapterNeverReady, bad) },
			object: bad, says: "gave up after 1s",
		},
		"ChannelNotReady": {
			reason: "the HTTPSource says Ready, its Channel is not: the condition alone is not trusted",
			fault:  func(p *plane, _ *testing.T) { p.controllers.Break(standin.ChannelNeverReady, bad) },
			object: bad, says: "Channel",
		},
		"ChannelWithoutAddress": {
			reason: "the Channel has no address",
			fault:  func(p *plane, _ *testing.T) { p.controllers.Break(standin.NoAddress, bad) },
			object: bad, says: "Channel",
		},
		"AdapterWithoutChannelCreated": {
			reason: "an adapter without a Channel, for an HTTPSource that was created",
			fault:  func(p *plane, _ *testing.T) { p.controllers.Break(standin.StatusLies, bad) },
			limit:  "5s",
			object: bad, says: "adapter without a channel",
		},
		"AdapterWithoutChannelExisting": {
			reason: "an adapter without a Channel, for an HTTPSource that existed",
			old:    true,
			fault: func(p *plane, t *testing.T) {
				p.controllers.Break(standin.ControllerDown, old)
				p.loseChannel(t, old)
			},
			object: old, says: "adapter without a channel",
		},
		"ControllerScaledDown": {
			reason: "nothing makes a Channel, and its controller has no log",
			fault: func(p *plane, t *testing.T) {
				p.controllers.Break(standin.ControllerDown, bad)
				p.controllerAtZero(t)
			},
			object: bad, says: "its controller, Deployment kyma-system/event-sources-controller-manager, has 0 replicas",
		},
		"ExistingNotReady": {
			reason: "one that existed is not ready in time",
			old:    true,
			fault: func(p *plane, t *testing.T) {
				p.controllers.Break(standin.AdapterNeverReady, old)
				p.unready(t, old)
			},
			object: old, says: "gave up after 1s",
		},
		"CannotBeCreated": {
			reason: "the API server refuses one",
			fault:  func(p *plane, t *testing.T) { p.deny(t, bad) },
			object: bad, says: "not this one",
		},
	}
	for _, version := range versions {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			p := on(t, version)
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					p.reset(t, len(apps))
					if tc.old {
						if err := standin.PutHTTPSources(t.Context(), p.Config(), old); err != nil {
							t.Fatal(err)
						}
						p.ready(t, old)
					}
					tc.fault(p, t)
					before, err := snapshot.Stable(t.Context(), p.Config(), snapshot.Options{Status: true})
					if err != nil {
						t.Fatal(err)
					}
					r := run(t, p.Kubeconfig, "--ready-timeout="+cmp.Or(tc.limit, "1s"))
					r.want(t, 1, migration.RolledBack)
					if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
						return f.Severity == migration.Error && strings.HasSuffix(f.Object, "/"+tc.object) && strings.Contains(f.Problem, tc.says) && f.Hint != ""
					}) {
						t.Errorf("%s: no finding names %s, says %q and gives a hint: %+v", tc.reason, tc.object, tc.says, r.Findings)
					}
					diff, err := snapshot.AwaitEqual(t.Context(), p.Config(), before, snapshot.Options{Status: true})
					if err != nil || diff != "" {
						t.Errorf("%s: the cluster differs from before: %v\n%s", tc.reason, err, diff)
					}
				})
			}
		})
	}
}

// loseChannel deletes the Application's Channel, which nobody makes anew.
func (p *plane) loseChannel(t *testing.T, app string) {
	t.Helper()
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	version := "v1alpha1"
	if p == planes[kubernetes.KnativeV1] {
		version = "v1"
	}
	channels := schema.GroupVersionResource{Group: "messaging.knative.dev", Version: version, Resource: "channels"}
	if err := client.Resource(channels).Namespace(standin.IntegrationNamespace).Delete(t.Context(), app, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// unready waits until the Application's HTTPSource says it is not ready.
func (p *plane) unready(t *testing.T, app string) {
	t.Helper()
	p.until(t, app, "not ready", func(obj *unstructured.Unstructured) bool {
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(c any) bool {
			m, ok := c.(map[string]any)
			return ok && m["type"] == "Ready" && m["status"] != "True"
		})
	})
}

func (p *plane) until(t *testing.T, name, state string, holds func(*unstructured.Unstructured) bool) {
	t.Helper()
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	poll.Until(t, 30*time.Second, "HTTPSource "+name+" is "+state, func(ctx context.Context) error {
		obj, err := client.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return poll.Stop(err)
		}
		if !holds(obj) {
			return fmt.Errorf("its status is %v", obj.Object["status"])
		}
		return nil
	})
}

// deny lets an admission policy refuse the HTTPSource of an Application, until
// the test ends.
func (p *plane) deny(t *testing.T, app string) {
	t.Helper()
	if err := p.Lacks("ValidatingAdmissionPolicy", 30); err != nil {
		t.Skip(err)
	}
	client, err := clientset.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	policies := client.AdmissionregistrationV1()
	const name = "deny-httpsource"
	_, err = policies.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"sources.kyma-project.io"}, APIVersions: []string{"*"}, Resources: []string{"httpsources"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("object.metadata.name != %q", app), Message: "not this one"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dry := func() error {
		client, err := dynamic.NewForConfig(p.Config())
		if err != nil {
			return nil
		}
		_, err = client.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace).
			Create(context.Background(), standin.HTTPSource(app), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	// A policy takes a moment to be in force, and one more to be lifted.
	settle := func(denied bool) {
		poll.Until(t, 30*time.Second, fmt.Sprintf("the policy denies: %t", denied), func(context.Context) error {
			if err := dry(); (err != nil) != denied {
				return fmt.Errorf("a creation ends with: %v", err) //nolint:errorlint // none may be what is wrong
			}
			return nil
		})
	}
	t.Cleanup(func() {
		_ = policies.ValidatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = policies.ValidatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{})
		settle(false)
	})
	settle(true)
}

// controllerAtZero makes the Deployment of the event-sources controller, scaled to 0, for this
// test.
func (p *plane) controllerAtZero(t *testing.T) {
	t.Helper()
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	deployments := client.Resource(standin.Deployments).Namespace(standin.SystemNamespace)
	const name = "event-sources-controller-manager"
	u := standin.Workload(standin.SystemNamespace, name)
	if err := unstructured.SetNestedField(u.Object, int64(0), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if _, err := deployments.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := deployments.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// TestEveryBadApplicationIsNamed gives the job all that it must refuse at once.
func TestEveryBadApplicationIsNamed(t *testing.T) {
	p := on(t, kubernetes.KnativeV1alpha1)
	p.reset(t, 3)
	bad := standin.BadApplications()
	for _, b := range bad {
		if err := standin.Load(t.Context(), p.Config(), b.Objects...); err != nil {
			t.Fatal(err)
		}
	}
	p.ready(t, "taken-source") // the foreign one
	// The report of a run would create it.
	state := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": kyma.StateNamespace}}}
	if err := standin.Load(t.Context(), p.Config(), state); err != nil {
		t.Fatal(err)
	}
	before, err := snapshot.Stable(t.Context(), p.Config(), snapshot.Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, p.Kubeconfig)
	r.want(t, 4, migration.Refused)
	for _, b := range bad {
		if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
			return f.Severity == migration.Error && strings.HasSuffix(f.Object, " "+b.Name) && f.Hint != ""
		}) {
			t.Errorf("%s is not named (%s): %+v", b.Name, b.Reason, r.Findings)
		}
	}
	after, err := snapshot.Take(t.Context(), p.Config(), snapshot.Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	// Only the report is new.
	for line := range strings.Lines(snapshot.Diff(before, after)) {
		if strings.HasPrefix(line, "+") && !strings.Contains(line, "ConfigMap eventmesh-migration/eventmesh-migration-httpsource-sync") || strings.HasPrefix(line, "-") {
			t.Errorf("something was touched: %s", line)
		}
	}
}

// TestKyma111: the event-sources controller of 1.11 takes over what that of 1.10 made, with
// a new revision of each adapter, and a condition that says nothing about Ready. The job
// leaves that alone, and knows what is created from then on.
func TestKyma111(t *testing.T) {
	p := on(t, versions[0])
	p.reset(t, 3)
	apps := standin.Names(3)
	if err := standin.PutHTTPSources(t.Context(), p.Config(), apps[0]); err != nil {
		t.Fatal(err)
	}
	p.ready(t, apps[0])
	upgrade := func(o standin.Options) {
		p.controllers.Stop()
		var err error
		if p.controllers, err = standin.Start(context.Background(), p.Config(), o); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { upgrade(standin.Options{}) })
	upgrade(standin.Options{Kyma111: true})
	run(t, p.Kubeconfig, "run").want(t, 0, migration.Succeeded)
	p.ready(t, apps...)
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, app := range apps {
		u, err := client.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace).Get(t.Context(), app, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		if !slices.ContainsFunc(conditions, func(c any) bool {
			condition := c.(map[string]any)
			return condition["type"] == "PolicyCreated" && condition["severity"] == "Info"
		}) {
			t.Errorf("HTTPSource %s is not of Kyma 1.11: %v", app, conditions)
		}
	}
	run(t, p.Kubeconfig, "run").want(t, 0, migration.NothingToDo)
}

// TestSchemaless: the CustomResourceDefinition of HTTPSources has no schema, so that one
// may have any source, or none. Where it has the name of an Application, the job names it
// and changes nothing.
func TestSchemaless(t *testing.T) {
	p := on(t, versions[0])
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]map[string]any{
		"NoSpec": {}, "NoSource": {"spec": map[string]any{}}, "Number": {"spec": map[string]any{"source": int64(7)}}, "Text": {"spec": "app-0001"},
	} {
		t.Run(name, func(t *testing.T) {
			p.reset(t, 2)
			u := &unstructured.Unstructured{Object: content}
			u.SetAPIVersion(standin.HTTPSources.GroupVersion().String())
			u.SetKind("HTTPSource")
			u.SetName(standin.Names(1)[0])
			if _, err := client.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			r := run(t, p.Kubeconfig, "run")
			r.want(t, 4, migration.Refused)
			if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
				return f.Severity == migration.Error && strings.Contains(f.String(), u.GetName()) && f.Hint != ""
			}) {
				t.Errorf("the HTTPSource is not named: %v", r.Findings)
			}
		})
	}
}

// TestMissingPermissions takes one verb after the other from the job's account.
func TestMissingPermissions(t *testing.T) {
	p := on(t, kubernetes.KnativeV1alpha1)
	p.reset(t, 2)
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"applicationconnector.kyma-project.io"}, Resources: []string{"applications"}, Verbs: []string{"list"}},
		{APIGroups: []string{"sources.kyma-project.io"}, Resources: []string{"httpsources"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
		{APIGroups: []string{"messaging.knative.dev"}, Resources: []string{"channels"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"serving.knative.dev"}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "create", "update"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "create", "update", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update", "watch"}},
	}
	for i, rule := range rules {
		for _, verb := range rule.Verbs {
			if rule.Resources[0] == "events" {
				continue // an Event that cannot be left is no failure
			}
			name := verb + " " + rule.Resources[0]
			t.Run(name, func(t *testing.T) {
				less := slices.Clone(rules)
				less[i].Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return v == verb })
				if len(less[i].Verbs) == 0 {
					less = slices.Delete(less, i, i+1)
				}
				kubeconfig, err := p.User(t.Context(), "less", less...)
				if err != nil {
					t.Fatal(err)
				}
				mark, err := p.Mark(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				r := run(t, kubeconfig, "--ready-timeout=1s")
				r.want(t, 4, migration.Refused)
				if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
					return f.Severity == migration.Error && strings.Contains(f.Problem, verb) && strings.Contains(f.Problem, rule.Resources[0]) && f.Hint != ""
				}) {
					t.Errorf("no finding names %s: %+v", name, r.Findings)
				}
				writes, err := p.Requests(t.Context(), mark, kubernetes.All(kubernetes.By("httpsource-sync"), kubernetes.IsWrite, func(r kubernetes.Request) bool {
					return r.Code < 300 && r.Resource != "coordination.k8s.io/leases" && r.Resource != "configmaps"
				}))
				if err != nil || len(writes) > 0 {
					t.Errorf("something was written: %v %v", writes, err)
				}
			})
		}
	}
	t.Run("WithAllOfThem", func(t *testing.T) {
		kubeconfig, err := p.User(t.Context(), "enough", rules...)
		if err != nil {
			t.Fatal(err)
		}
		mark, err := p.Mark(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		run(t, kubeconfig).want(t, 0, migration.Succeeded)
		run(t, kubeconfig, "undo").want(t, 0, migration.Succeeded)
		p.controllers.Break(standin.AdapterNeverReady, standin.Names(2)[0])
		run(t, kubeconfig, "--ready-timeout=1s").want(t, 1, migration.RolledBack)
		refused, err := p.Requests(t.Context(), mark, kubernetes.All(kubernetes.By("httpsource-sync"), func(r kubernetes.Request) bool { return r.Code == 403 }))
		if err != nil || len(refused) > 0 {
			t.Errorf("the account lacks a permission: %v %v", refused, err)
		}
	})
}

// TestMissingKinds takes away the kinds that the job needs, in each of the ways
// it has to tell apart.
func TestMissingKinds(t *testing.T) {
	p := on(t, kubernetes.KnativeV1alpha1)
	reinstall := func() {
		t.Helper()
		if err := p.InstallCRDs(t.Context(), kubernetes.KnativeV1alpha1); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, crd string) {
		t.Helper()
		if err := p.RemoveCRD(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		reason, crd string
		apps        int
		exit        int
		result      migration.Result
		says        string
	}{
		{"no source kind: nothing to do", "applications.applicationconnector.kyma-project.io", 0, 0, migration.NothingToDo, "no Kyma cluster"},
		{"no work: nothing to do", "httpsources.sources.kyma-project.io", 0, 0, migration.NothingToDo, ""},
		{"work, and no kind to write", "httpsources.sources.kyma-project.io", 2, 4, migration.Refused, "event-sources"},
		{"work, and no kind to wait for", "channels.messaging.knative.dev", 2, 4, migration.Refused, "knative-eventing"},
		{"work, and no kind to wait for", "services.serving.knative.dev", 2, 4, migration.Refused, "knative-serving"},
	} {
		t.Run(strings.ReplaceAll(tc.reason, " ", "-")+"/"+tc.crd, func(t *testing.T) {
			p.reset(t, tc.apps)
			remove(t, tc.crd)
			defer reinstall()
			r := run(t, p.Kubeconfig)
			r.want(t, tc.exit, tc.result)
			if tc.says != "" && !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool { return strings.Contains(f.Problem+f.Hint, tc.says) }) {
				t.Errorf("no finding says %q: %+v", tc.says, r.Findings)
			}
		})
	}
	t.Run("discovery-that-failed-is-never-absence", func(t *testing.T) {
		p.reset(t, 2)
		remove(t, "httpsources.sources.kyma-project.io")
		defer reinstall()
		services, err := dynamic.NewForConfig(p.Config())
		if err != nil {
			t.Fatal(err)
		}
		apiServices := services.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
		broken := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
			"metadata": map[string]any{"name": "v1beta1.sources.kyma-project.io"},
			"spec": map[string]any{
				"group": "sources.kyma-project.io", "version": "v1beta1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
				"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "nowhere"},
			},
		}}
		if _, err := apiServices.Create(t.Context(), broken, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = apiServices.Delete(context.Background(), broken.GetName(), metav1.DeleteOptions{})
		}()
		var r result
		// The aggregator takes a moment to list the group as stale.
		poll.Until(t, 30*time.Second, "the group is stale", func(context.Context) error {
			if r = run(t, p.Kubeconfig); strings.Contains(r.stdout, "event-sources") {
				return fmt.Errorf("the run takes it as absent:\n%s", r.stdout)
			}
			return nil
		})
		r.want(t, 1, migration.FailedResult)
		if !strings.Contains(r.Message, "sources.kyma-project.io") || len(r.Findings) == 0 {
			t.Errorf("the group is not named: %s %+v", r.Message, r.Findings)
		}
	})
}

// TestUndoKeepsWhatCarriesLiveEvents switches one event-service to the mesh.
func TestUndoKeepsWhatCarriesLiveEvents(t *testing.T) {
	p := on(t, kubernetes.KnativeV1alpha1)
	p.reset(t, 3)
	switched, others := standin.Names(3)[1], []string{standin.Names(3)[0], standin.Names(3)[2]}
	run(t, p.Kubeconfig).want(t, 0, migration.Succeeded)
	if err := standin.Load(t.Context(), p.Config(), standin.EventService(switched, true), standin.EventService(others[0], false)); err != nil {
		t.Fatal(err)
	}
	r := run(t, p.Kubeconfig, "undo")
	r.want(t, 3, migration.PartlyRestored)
	if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
		return strings.HasSuffix(f.Object, "/"+switched) && strings.Contains(f.Problem, "protected: carries live events")
	}) {
		t.Errorf("not said: %+v", r.Findings)
	}
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != switched {
		t.Errorf("want only the HTTPSource of %s left: %v %v", switched, list, err)
	}
}

// TestHelm2 leaves Applications alone whose release would break.
func TestHelm2(t *testing.T) {
	p := on(t, kubernetes.KnativeV1alpha1)
	apps := standin.Names(3)
	put := func(t *testing.T) {
		t.Helper()
		p.reset(t, 3)
		err := standin.Load(t.Context(), p.Config(),
			standin.TillerRelease(apps[0], standin.IntegrationNamespace, 1, "DEPLOYED", standin.ApplicationManifest(apps[0], true)),
			standin.TillerRelease(apps[1], standin.IntegrationNamespace, 1, "DEPLOYED", standin.ApplicationManifest(apps[1], false)))
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("LeftToTheOperator", func(t *testing.T) {
		put(t)
		r := run(t, p.Kubeconfig)
		r.want(t, 0, migration.Succeeded)
		if len(r.Changes) != 1 || r.Changes[0].Name != apps[0] {
			t.Errorf("only the HTTPSource in a manifest is to be created: %+v", r.Changes)
		}
		for _, app := range apps[1:] {
			if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
				return strings.HasSuffix(f.Object, " "+app) && strings.Contains(f.Problem, "left to the application-operator")
			}) {
				t.Errorf("%s is not reported: %+v", app, r.Findings)
			}
		}
	})
	t.Run("Overridden", func(t *testing.T) {
		put(t)
		r := run(t, p.Kubeconfig, "--on-helm2-conflict=create")
		r.want(t, 0, migration.Succeeded)
		if len(r.Changes) != 3 {
			t.Errorf("all are to be created: %+v", r.Changes)
		}
	})
	t.Run("UnreadableIsRefused", func(t *testing.T) {
		put(t)
		if err := standin.Load(t.Context(), p.Config(), standin.TillerConfigMap(apps[2], 1, "DEPLOYED", "garbage")); err != nil {
			t.Fatal(err)
		}
		r := run(t, p.Kubeconfig)
		r.want(t, 4, migration.Refused)
		if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool { return strings.Contains(f.Object, "ConfigMap kube-system/"+apps[2]) }) {
			t.Errorf("the ConfigMap is not named: %+v", r.Findings)
		}
	})
}

// TestMigratedClusterCostsReadsOnly counts every request of a run with nothing
// to do, in the audit log.
func TestMigratedClusterCostsReadsOnly(t *testing.T) {
	const n = 501 // two pages of each kind
	p := on(t, kubernetes.KnativeV1alpha1)
	p.reset(t, n)
	if err := standin.PutHTTPSources(t.Context(), p.Config(), standin.Names(n)...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := p.controllers.WaitReady(ctx, standin.Names(n)...); err != nil {
		t.Fatal(err)
	}
	mark, err := p.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, p.Kubeconfig)
	r.want(t, 0, migration.NothingToDo)
	requests, err := p.Requests(t.Context(), mark, kubernetes.By("httpsource-sync"))
	if err != nil {
		t.Fatal(err)
	}
	pages, others := map[string]int{}, 0
	for _, request := range requests {
		switch {
		case kubernetes.IsWrite(request):
			t.Errorf("a write: %s", request)
		case request.Verb == "list" && request.Resource != "secrets":
			pages[request.Resource]++
			if !strings.Contains(request.URI, "limit=500") {
				t.Errorf("a list that is not paged: %s", request)
			}
		default:
			others++
		}
	}
	if len(pages) != 4 {
		t.Errorf("kinds listed: %v", pages)
	}
	for resource, count := range pages {
		if count != 2 {
			t.Errorf("%s was listed in %d requests, want 2 pages", resource, count)
		}
	}
	allowed := 6
	if p.Lacks("discovery of all groups at once", 27) != nil {
		allowed = 9 // each group that it needs is one more
	}
	if others > allowed {
		t.Errorf("%d requests besides the pages, at most %d are allowed: %v", others, allowed, requests)
	}
	p.throughABadServer(t)
}

// throughABadServer runs a job with nothing to do on a large cluster, through an
// API server that answers badly in a fifth of all requests and, besides, lets the
// first two continue tokens of each kind expire.
func (p *plane) throughABadServer(t *testing.T) {
	t.Helper()
	for seed := uint64(1); seed <= 5; seed++ {
		proxy, err := faultproxy.Start(p.Config())
		if err != nil {
			t.Fatal(err)
		}
		faults := proxy.RandomFaults(seed, 0.2)
		var mu sync.Mutex
		expired := map[string]int{}
		proxy.Deny(func(r faultproxy.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if !r.Continues || expired[r.Resource] == 2 {
				return false
			}
			expired[r.Resource]++
			return true
		}, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.").ErrStatus)
		kubeconfig, err := proxy.Kubeconfig(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, kubeconfig)
		proxy.Close()
		t.Logf("seed %d: %s; continue tokens expired: %v", seed, faults, expired)
		if len(expired) < 4 {
			t.Errorf("seed %d: continue tokens of %v expired, want those of four kinds", seed, expired)
		}
		r.want(t, 0, migration.NothingToDo)
		if len(r.Findings) > 0 {
			t.Errorf("seed %d: what was listed twice or not at all shows as findings: %+v", seed, r.Findings)
		}
	}
}

// TestUnreachable ends soon, with a message that names the server.
func TestUnreachable(t *testing.T) {
	p := on(t, kubernetes.KnativeV1alpha1)
	r := run(t, p.Kubeconfig, "--context=elsewhere")
	if r.exit != 2 || !strings.Contains(r.stderr, "elsewhere") {
		t.Errorf("exit code %d: %s", r.exit, r.stderr)
	}
	unreachable := p.elsewhere(t)
	r = run(t, unreachable)
	r.want(t, 1, migration.FailedResult)
	if !strings.Contains(r.Message, "cannot reach the API server https://127.0.0.1:1") || r.Findings[0].Hint == "" {
		t.Errorf("message: %s", r.Message)
	}
}
