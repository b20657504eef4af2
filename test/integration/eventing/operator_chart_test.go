package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

const operatorChart = "charts/eventing-manager"

// eachHelm runs a test with the versions of Helm that know the chart's apiVersion.
func eachHelm(t *testing.T, test func(t *testing.T, h *helm.Helm)) {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, major := range []int{3, 4} {
		h, err := helm.New(t.Context(), root, major)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprintf("Helm%d", major), func(t *testing.T) { test(t, h) })
	}
}

// operator renders the operator's chart.
func operator(t *testing.T, h *helm.Helm, namespace string, set ...string) []*unstructured.Unstructured {
	t.Helper()
	text, err := h.Template(t.Context(), "eventing-manager", operatorChart, "--namespace", namespace, "--kube-version", "1.30.0", "--include-crds", "--set", strings.Join(append([]string{"image.tag=v1"}, set...), ","))
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		u := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if strings.TrimSpace(string(raw)) == "null" {
			continue
		}
		if err := u.UnmarshalJSON(raw); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		all = append(all, u)
	}
	return all
}

// TestMonitoringChart: with the values, there are the alerts and the dashboards of the files, as
// they are there: Prometheus and Grafana have templates of their own in them.
func TestMonitoringChart(t *testing.T) {
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	read := func(file string) string {
		raw, err := os.ReadFile(filepath.Join(root, operatorChart, "monitoring", file))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	var rules map[string]any
	if err := yaml.Unmarshal([]byte(read("alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	eachHelm(t, func(t *testing.T, h *helm.Helm) {
		for _, on := range []string{"busola.enabled=true", "prometheusRule.enabled=true", "dashboards.enabled=true"} {
			objects := operator(t, h, "shop", "prometheusRule.labels.release=monitoring", "resourcePrefix=events", on)
			var alerts, dashboards int
			for _, u := range objects {
				switch {
				case u.GetKind() == "PrometheusRule":
					alerts++
					if diff := cmp.Diff(rules, u.Object["spec"]); diff != "" || u.GetLabels()["release"] != "monitoring" || u.GetName() != "events" || u.GetNamespace() != "shop" {
						t.Errorf("%s in %s, labels %v, spec (-file +object):\n%s", u.GetName(), u.GetNamespace(), u.GetLabels(), diff)
					}
				case strings.HasPrefix(u.GetName(), "events-dashboard-"):
					dashboards++
					name := strings.TrimPrefix(u.GetName(), "events-dashboard-") + ".json"
					want := map[string]any{name: strings.TrimSpace(read("dashboards/" + name))}
					if diff := cmp.Diff(want, u.Object["data"]); diff != "" || u.GetLabels()["grafana_dashboard"] != "1" || u.GetNamespace() != "shop" {
						t.Errorf("%s in %s, labels %v (-file +object):\n%s", u.GetName(), u.GetNamespace(), u.GetLabels(), diff)
					}
				}
			}
			if (alerts == 1) != strings.HasPrefix(on, "prometheusRule") || (dashboards == 3) != strings.HasPrefix(on, "dashboards") {
				t.Errorf("%q: %d rules, %d dashboards", on, alerts, dashboards)
			}
		}
	})
}

// names are the objects as "Kind name", sorted.
func names(objects []*unstructured.Unstructured) []string {
	var all []string
	for _, u := range objects {
		all = append(all, u.GetKind()+" "+u.GetName())
	}
	slices.Sort(all)
	return all
}

// typed are the objects of one kind.
func typed[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []T {
	t.Helper()
	var all []T
	for _, u := range objects {
		if u.GetKind() != kind {
			continue
		}
		var one T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &one, true); err != nil {
			t.Fatalf("%s %s: %v", kind, u.GetName(), err)
		}
		all = append(all, one)
	}
	return all
}

// TestOperatorChart: what is rendered, on each version of Helm.
func TestOperatorChart(t *testing.T) {
	want := []string{
		"ClusterRole shop:eventing-controller", "ClusterRole shop:eventing-edit", "ClusterRole shop:eventing-manager", "ClusterRole shop:eventing-publisher-proxy", "ClusterRole shop:eventing-read-events", "ClusterRole shop:eventing-view",
		"ClusterRoleBinding shop:eventing-controller", "ClusterRoleBinding shop:eventing-manager", "ClusterRoleBinding shop:eventing-publisher-proxy",
		"ConfigMap eventing-busola-eventings", "ConfigMap subscriptions-eventing-busola",
		"CustomResourceDefinition eventings.operator.kyma-project.io", "CustomResourceDefinition subscriptions.eventing.kyma-project.io",
		"Deployment eventing-manager", "NetworkPolicy eventing-controller", "NetworkPolicy eventing-manager", "NetworkPolicy eventing-nats",
		"NetworkPolicy eventing-publisher-proxy",
		"Role eventing-controller", "Role eventing-kubectl", "Role eventing-manager", "Role eventing-publisher-proxy",
		"RoleBinding eventing-controller", "RoleBinding eventing-manager", "RoleBinding eventing-publisher-proxy",
		"Service eventing-manager-metrics",
		"ServiceAccount eventing-controller", "ServiceAccount eventing-manager", "ServiceAccount eventing-publisher-proxy",
	}
	eachHelm(t, func(t *testing.T, h *helm.Helm) {
		objects := operator(t, h, "shop")
		if diff := cmp.Diff(want, names(objects)); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
		for _, u := range objects {
			_, isOurs := u.GetLabels()[backend.PlaneLabel]
			scope := "shop"
			if strings.HasPrefix(u.GetKind(), "Cluster") || u.GetKind() == "CustomResourceDefinition" {
				scope = ""
			}
			if isOurs || u.GetNamespace() != scope {
				t.Errorf("%s %s is in namespace %q; the label of a plane, by which the operator deletes: %t", u.GetKind(), u.GetName(), u.GetNamespace(), isOurs)
			}
		}
		d := typed[appsv1.Deployment](t, objects, "Deployment")[0]
		if got := d.Spec.Template.Spec.Containers[0]; got.Image != "eu.gcr.io/kyma-project/eventmesh-migration/eventing-manager:v1" ||
			!slices.Contains(got.Env, corev1.EnvVar{Name: "NATS_IMAGE", Value: "eu.gcr.io/kyma-project/eventmesh-migration/nats-server:v1"}) || !slices.Contains(got.Args, "--resource-prefix=eventing") {
			t.Errorf("image %s, arguments %q, variables %v", got.Image, got.Args, got.Env)
		}

		digest := "sha256:" + strings.Repeat("0a", 32)
		other := operator(t, h, "shop", "resourcePrefix=shop", "replicas=2", "image.digests.nats-server="+digest)
		if both := slices.DeleteFunc(names(other), func(name string) bool {
			return strings.HasPrefix(name, "CustomResourceDefinition ") || !slices.Contains(want, name)
		}); len(both) > 0 {
			t.Errorf("operators with two prefixes share %q", both)
		}
		if !slices.Contains(names(other), "PodDisruptionBudget shop-manager") {
			t.Error("two operators have no PodDisruptionBudget")
		}
		if env := typed[appsv1.Deployment](t, other, "Deployment")[0].Spec.Template.Spec.Containers[0].Env; !slices.Contains(env, corev1.EnvVar{Name: "NATS_IMAGE", Value: "eu.gcr.io/kyma-project/eventmesh-migration/nats-server:v1@" + digest}) {
			t.Errorf("the digest does not follow the tag: %v", env)
		}
		named := names(operator(t, h, "shop", "fullnameOverride=eventing-controller-manager"))
		if !slices.Contains(named, "Deployment eventing-controller-manager") || slices.Contains(named, "ServiceAccount eventing-manager") {
			t.Errorf("with another name: %q", named)
		}

		for _, tc := range []struct{ reason, set, refused string }{
			{"an image that nobody has pushed", "image.tag=", "image.allowDevel=true is for tests"},
			{"three operators", "replicas=3", "use 1 or 2"},
			{"a prefix that is too long", "resourcePrefix=" + strings.Repeat("a", 31), "use at most 30"},
			{"an unknown value", "replica=2", "replica"},
			{"a digest that is none", "image.digests.nats-server=sha256:1", "digest"},
		} {
			if _, err := h.Template(t.Context(), "eventing-manager", operatorChart, "--namespace", "shop", "--kube-version", "1.30.0", "--set", "image.tag=v1,"+tc.set); err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: want an error with %q, got %v", tc.reason, tc.refused, err)
			}
		}
	})
}

// TestNetworkPolicies: the policy of NATS selects the pods of NATS, and lets in the programs of
// eventing at the port of clients, and nobody else.
func TestNetworkPolicies(t *testing.T) {
	pods := func(prefix string) (server, program labels.Set) {
		rendered, err := loaded(t).Render(chart.Release{Name: prefix, Namespace: "shop"}, map[string]any{
			"global": map[string]any{"prefix": prefix}, "controller": map[string]any{"enabled": true},
		})
		if err != nil {
			t.Fatal(err)
		}
		return typed[appsv1.StatefulSet](t, rendered, "StatefulSet")[0].Spec.Template.Labels, typed[appsv1.Deployment](t, rendered, "Deployment")[0].Spec.Template.Labels
	}
	server, program := pods("eventing")
	_, others := pods("shop")
	eachHelm(t, func(t *testing.T, h *helm.Helm) {
		objects := operator(t, h, "shop")
		manager := labels.Set(typed[appsv1.Deployment](t, objects, "Deployment")[0].Spec.Template.Labels)
		for _, policy := range typed[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy") {
			if policy.Name != "eventing-nats" {
				continue
			}
			if !selects(t, &policy.Spec.PodSelector, server) || selects(t, &policy.Spec.PodSelector, program) || selects(t, &policy.Spec.PodSelector, manager) {
				t.Errorf("the policy selects %v", policy.Spec.PodSelector)
			}
			for _, tc := range []struct {
				reason string
				pod    labels.Set
				ports  []int32
			}{
				{"the operator", manager, []int32{4222, 8222}},
				{"a server", server, []int32{4222, 6222}},
				{"the publisher or the controller", program, []int32{4222}},
				{"another operator's program", others, nil},
				{"any other pod", labels.Set{"app": "orders"}, nil},
			} {
				var got []int32
				for _, rule := range policy.Spec.Ingress {
					if slices.ContainsFunc(rule.From, func(from networkingv1.NetworkPolicyPeer) bool { return selects(t, from.PodSelector, tc.pod) }) {
						got = append(got, rule.Ports[0].Port.IntVal)
					}
				}
				if diff := cmp.Diff(tc.ports, got); diff != "" {
					t.Errorf("%s may reach NATS at (-want +got):\n%s", tc.reason, diff)
				}
			}
		}
	})
}

func selects(t *testing.T, selector *metav1.LabelSelector, pod labels.Set) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(pod)
}

type warned struct {
	mu  sync.Mutex
	all []string
}

func (w *warned) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// TestOperatorManifest: the rendered chart is applied to a real API server, in a namespace that
// enforces the restricted Pod Security Standard. A second time, it changes nothing. Each account
// may do what its program needs, and no more.
func TestOperatorManifest(t *testing.T) {
	const namespace = "operator-manifest"
	ctx := t.Context()
	config, warnings := cluster.Config(), &warned{}
	config.WarningHandler = warnings
	core, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
	}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	h, err := helm.New(ctx, root, 4)
	if err != nil {
		t.Fatal(err)
	}
	objects := operator(t, h, namespace, "replicas=2")
	apply := func() map[string]string {
		versions := map[string]string{}
		for _, u := range objects {
			gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
			of := dynamic.ResourceInterface(client.Resource(gvr))
			if u.GetNamespace() != "" {
				of = client.Resource(gvr).Namespace(u.GetNamespace())
			}
			applied, err := of.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
			if err != nil {
				t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
			}
			versions[u.GetKind()+" "+u.GetName()] = fmt.Sprint(applied.GetGeneration(), " ", applied.GetManagedFields()[0].Time)
			if u.GetKind() != "CustomResourceDefinition" { // the one that the tests of this package share
				t.Cleanup(func() { _ = of.Delete(context.WithoutCancel(ctx), u.GetName(), metav1.DeleteOptions{}) })
			}
		}
		return versions
	}
	first := apply()
	if diff := cmp.Diff(first, apply()); diff != "" {
		t.Errorf("a second apply changes something (-first +second):\n%s", diff)
	}
	poll.Until(t, time.Minute, "the pods of the operator are admitted", func(ctx context.Context) error {
		pods, err := core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=eventing-manager"})
		if err != nil {
			return err
		}
		if len(pods.Items) != 2 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return nil
	})
	if len(warnings.all) > 0 {
		t.Errorf("the API server warns:\n%s", strings.Join(warnings.all, "\n"))
	}

	for _, tc := range []struct {
		account, verb, group, resource, namespace, name string
		allowed                                         bool
	}{
		{"eventing-manager", "patch", "apps", "statefulsets", namespace, "eventing-nats", true},
		{"eventing-manager", "create", "", "secrets", namespace, "", true},
		{"eventing-manager", "update", "coordination.k8s.io", "leases", namespace, "eventing-manager.kyma-project.io", true},
		{"eventing-manager", "patch", "operator.kyma-project.io", "eventings", "kcp-system", "x", true},
		{"eventing-manager", "update", "operator.kyma-project.io", "eventings", "kcp-system", "x", false},
		{"eventing-manager", "create", "events.k8s.io", "events", "kcp-system", "", true},
		{"eventing-manager", "update", "coordination.k8s.io", "leases", namespace, "other", false},
		{"eventing-manager", "get", "", "secrets", "default", "x", false},
		{"eventing-manager", "create", "", "pods", namespace, "", false},
		{"eventing-manager", "create", "", "persistentvolumeclaims", namespace, "", false},
		{"eventing-manager", "create", "", "serviceaccounts", namespace, "", false},
		{"eventing-manager", "create", "rbac.authorization.k8s.io", "roles", namespace, "", false},
		{"eventing-manager", "patch", "rbac.authorization.k8s.io", "clusterrolebindings", "", "eventing-manager", false},
		{"eventing-manager", "patch", "apiextensions.k8s.io", "customresourcedefinitions", "", "x", false},
		{"eventing-manager", "patch", "networking.k8s.io", "networkpolicies", namespace, "eventing-nats", false},
		{"eventing-publisher-proxy", "list", "eventing.kyma-project.io", "subscriptions", "shop", "", true},
		{"eventing-publisher-proxy", "watch", "", "configmaps", namespace, "eventing-backends", true},
		{"eventing-publisher-proxy", "get", "", "configmaps", namespace, "eventing-backends", false},
		{"eventing-publisher-proxy", "get", "", "configmaps", namespace, "eventing-nats-config", false},
		{"eventing-publisher-proxy", "patch", "eventing.kyma-project.io", "subscriptions", "shop", "x", false},
		{"eventing-publisher-proxy", "get", "", "secrets", namespace, "eventing-nats-users", false},
		{"eventing-controller", "update", "eventing.kyma-project.io", "subscriptions/status", "shop", "x", true},
		{"eventing-controller", "update", "", "configmaps", namespace, "eventing-controller-state", true},
		{"eventing-controller", "update", "", "configmaps", namespace, "eventing-backends", false},
		{"eventing-controller", "patch", "", "configmaps", namespace, "eventing-controller-roster", true},
		{"eventing-controller", "create", "eventing.knative.dev", "triggers", namespace, "", true},
		{"eventing-controller", "get", "eventing.knative.dev", "brokers", namespace, "eventing", true},
		{"eventing-controller", "delete", "eventing.knative.dev", "brokers", namespace, "eventing", false},
		{"eventing-controller", "create", "eventing.knative.dev", "triggers", "shop", "", false},
		{"eventing-controller", "get", "", "secrets", namespace, "eventing-nats-users", false},
		{"eventing-controller", "patch", "apps", "statefulsets", namespace, "eventing-nats", false},
	} {
		resource, sub, _ := strings.Cut(tc.resource, "/")
		poll.Until(t, 20*time.Second, fmt.Sprintf("%+v", tc), func(ctx context.Context) error {
			review, err := core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + namespace + ":" + tc.account,
				Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: tc.verb, Group: tc.group, Resource: resource, Subresource: sub, Namespace: tc.namespace, Name: tc.name},
			}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if review.Status.Allowed != tc.allowed {
				return errors.New(review.Status.Reason)
			}
			return nil
		})
	}
	users(t, core)
	for _, kind := range []string{"Role", "ClusterRole"} {
		for _, role := range typed[rbacv1.ClusterRole](t, objects, kind) { // a Role has the same fields
			for _, rule := range role.Rules {
				if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Resources, "*") || slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.APIGroups, rbacv1.GroupName) {
					t.Errorf("%s %s has the rule %v", kind, role.Name, rule)
				}
			}
		}
	}
}

// users checks what people may do who have one of Kubernetes' own roles in a namespace. On f3299ef
// nobody but an administrator of the cluster could subscribe.
func users(t *testing.T, core clientset.Interface) {
	t.Helper()
	const namespace = "users"
	ctx := t.Context()
	if _, err := core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"view", "edit", "admin"} {
		if _, err := core.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: role}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		verb, resource string
		view, edit     bool
	}{
		{"list", "subscriptions.eventing.kyma-project.io", true, true},
		{"create", "subscriptions.eventing.kyma-project.io", false, true},
		{"deletecollection", "subscriptions.eventing.kyma-project.io", false, true},
		{"get", "eventings.operator.kyma-project.io", true, true},
		{"create", "eventings.operator.kyma-project.io", false, false},
		{"patch", "eventings.operator.kyma-project.io", false, false},
	} {
		for user, allowed := range map[string]bool{"view": tc.view, "edit": tc.edit, "admin": tc.edit} {
			resource, group, _ := strings.Cut(tc.resource, ".")
			poll.Until(t, 20*time.Second, fmt.Sprintf("%s %s %s", user, tc.verb, resource), func(ctx context.Context) error {
				review, err := core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: tc.verb, Group: group, Resource: resource, Namespace: namespace},
				}}, metav1.CreateOptions{})
				if err == nil && review.Status.Allowed != allowed {
					err = fmt.Errorf("allowed is %t", review.Status.Allowed)
				}
				return err
			})
		}
	}
}
