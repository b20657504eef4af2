package charts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// TestTheFirstHookCreatesTheStateNamespace fails on the commit before: the state was in
// kyma-system, which exists.
func TestTheFirstHookCreatesTheStateNamespace(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, component := range components {
			r := render(t, h, "--set", "component="+component)
			if len(of[*corev1.Namespace](r)) > 0 {
				t.Errorf("%s: a Namespace would be deleted before it is created again, or be a part of the release", component)
			}
			job := r.job(t, "core-"+stateNamespace)
			c := pod(job).Containers[0]
			program := chainOf(t, component).Pre[0].Job
			if !strings.Contains(c.Image, "/"+program+":") || c.Args[0] != "create-state-namespace" || !slices.Contains(c.Args, "--state-namespace="+kyma.StateNamespace) || !slices.Contains(c.Args, "--timeout=60s") {
				t.Errorf("%s: %s %q", component, c.Image, c.Args)
			}
			// In the order of their weights: the account, the Job, the account again, and then
			// all that needs the namespace.
			var own []string
			for _, obj := range r.objects {
				m, err := meta.Accessor(obj)
				if err != nil {
					t.Fatal(err)
				}
				if ofFirst(m.GetName()) {
					own = append(own, fmt.Sprintf("%d %T %s", weightOf(m), obj, m.GetAnnotations()[policy]))
					if m.GetAnnotations()[release] != job.Annotations[release] {
						t.Errorf("%s: %T runs at %s, and the Job at %s", component, obj, m.GetAnnotations()[release], job.Annotations[release])
					}
				} else if weightOf(m) <= -60 {
					t.Errorf("%s: %T %s has the weight %d: before there is a state namespace", component, obj, m.GetName(), weightOf(m))
				}
				// Whatever runs after an upgrade comes after something that ran before it, and
				// "helm test" after an installation.
				for event := range strings.SplitSeq(m.GetAnnotations()[release], ",") {
					if event != "test" && !strings.HasPrefix(event, "post-") && !slices.Contains(strings.Split(job.Annotations[release], ","), event) {
						t.Errorf("%s: %T %s runs at %s without a state namespace", component, obj, m.GetName(), event)
					}
				}
			}
			slices.Sort(own)
			want := []string{
				"-60 *v1.ClusterRole before-hook-creation,hook-succeeded", "-60 *v1.ClusterRoleBinding before-hook-creation,hook-succeeded", "-60 *v1.ServiceAccount before-hook-creation,hook-succeeded",
				"-65 *v1.Job before-hook-creation,hook-succeeded",
				"-70 *v1.ClusterRole before-hook-creation", "-70 *v1.ClusterRoleBinding before-hook-creation", "-70 *v1.ServiceAccount before-hook-creation",
			}
			if diff := cmp.Diff(want, own); diff != "" {
				t.Errorf("%s (-want +got):\n%s", component, diff)
			}
			for _, role := range of[*rbacv1.ClusterRole](r) {
				if !ofFirst(role.Name) || weightOf(role) == -60 && len(role.Rules) == 0 {
					continue // another's, or the one that removes it
				}
				want := []rbacv1.PolicyRule{
					{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{kyma.StateNamespace}, Verbs: []string{"get"}},
					{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"}},
				}
				if diff := cmp.Diff(want, role.Rules); diff != "" {
					t.Errorf("%s (-want +got):\n%s", component, diff)
				}
			}
		}
	})
}

func TestTheStateNamespaceIsCreatedByWhateverJobRunsFirst(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		before := jobsOf(chainOf(t, "core").Pre)
		last := len(before) - 1
		job := render(t, h, "--set", "namespaces.state=mine,"+without(before[:last]...)).job(t, "core-"+stateNamespace)
		if c := pod(job).Containers[0]; !strings.Contains(c.Image, "/"+before[last]+":") || !slices.Contains(c.Args, "--state-namespace=mine") {
			t.Errorf("%s %q", c.Image, c.Args)
		}
		// Without anything before the upgrade, it comes first after it.
		if got := render(t, h, "--set", without(before...)).job(t, "core-"+stateNamespace).Annotations[release]; got != "post-upgrade,post-install,pre-rollback" {
			t.Errorf("it runs at %s", got)
		}
		for _, args := range []string{"namespaces.createState=false", "hooks.enabled=false,phase=pre"} {
			for _, job := range of[*batchv1.Job](render(t, h, "--set", args)) {
				if strings.HasSuffix(job.Name, stateNamespace) {
					t.Errorf("%s: there is Job %s", args, job.Name)
				}
			}
		}
	})
}

// TestNoJobReachesForeignSecrets: Secrets are in the state namespace only, and who only
// reads has none. Fails on the commit before: all jobs listed those of kyma-system.
func TestNoJobReachesForeignSecrets(t *testing.T) {
	var readers []string
	for _, e := range chartJobs() {
		if onlyReads(e) {
			readers = append(readers, e.Name())
		}
	}
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, component := range components {
			for _, form := range []string{"", ",hooks.enabled=false,phase=pre", ",hooks.enabled=false,phase=post"} {
				seen := false
				for name, list := range rules(render(t, h, "--set", "component="+component+form)) {
					for _, rule := range list {
						if !slices.Contains(rule.Resources, "secrets") {
							continue
						}
						seen = true
						reads := slices.ContainsFunc(readers, func(job string) bool { return strings.HasSuffix(name, "-"+job) })
						if reads || !strings.HasPrefix(name, "Role "+kyma.StateNamespace+"/") {
							t.Errorf("%s%s: %s: %v", component, form, name, rule)
						}
					}
				}
				if seen != (component != "cluster-essentials") {
					t.Errorf("%s%s: a Role for Secrets: %t", component, form, seen)
				}
			}
		}
	})
}

// TestClusterEssentialsHoldsTheStateNamespace: as a plain object that stays.
func TestClusterEssentialsHoldsTheStateNamespace(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		chart := overlaid(t, "cluster-essentials", "1.11")
		namespaces := func(args ...string) []*corev1.Namespace {
			t.Helper()
			out, err := h.Template(t.Context(), "cluster-essentials", chart, append([]string{"--namespace", systemNS, "--set", "eventmesh-migration.image.allowDevel=true"}, args...)...)
			if err != nil {
				t.Fatal(err)
			}
			var found []*corev1.Namespace
			for _, doc := range strings.Split(out, "\n---\n") {
				if strings.Contains(doc, "kind: Namespace\n") {
					found = append(found, of[*corev1.Namespace](read(t, doc))...)
				}
			}
			return found
		}
		found := namespaces()
		if len(found) != 1 || found[0].Name != kyma.StateNamespace {
			t.Fatalf("got %v", found)
		}
		if diff := cmp.Diff(map[string]string{"helm.sh/resource-policy": "keep"}, found[0].Annotations); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
		if found := namespaces("--set", "eventmesh-migration.stateNamespace="); len(found) > 0 {
			t.Errorf("it exists already, and is the release's: %v", found)
		}
		overlay(t, "-chart", chart, "-kyma", "1.12")
		if found := namespaces(); len(found) > 0 {
			t.Errorf("the hook of 1.12 needs it before the release's objects are created: %v", found)
		}
	})
}

// TestTheStateNamespaceOutlivesItsRelease upgrades and deletes with the real Helms.
func TestTheStateNamespaceOutlivesItsRelease(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	plane, err := kubernetes.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	if !plane.Own() {
		t.Skip("deletes namespaces: unset " + kubernetes.KubeconfigEnv)
	}
	client, err := clientset.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNS}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, shared *helm.Helm) {
		h := *shared
		h.Env = append(slices.Clone(h.Env), "KUBECONFIG="+plane.Kubeconfig)
		if h.Major == 2 {
			stop, err := h.StartTiller(ctx, plane.Kubeconfig, "kube-system")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
		}
		name := fmt.Sprintf("state-%d", h.Major)
		chart := overlaid(t, "cluster-essentials", "1.11")
		// A definition of v1beta1 is for old API servers; and each version of Helm has its release.
		if err := os.Remove(filepath.Join(chart, "templates", "eventing-subscription.crd.yaml")); err != nil {
			t.Fatal(err)
		}
		if err := helm.WriteChart(chart, map[string]string{"templates/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n"}); err != nil {
			t.Fatal(err)
		}
		upgrade := func(state string) error {
			_, err := h.Upgrade(ctx, name, chart, systemNS, time.Minute, "--set", "eventmesh-migration.stateNamespace="+state)
			return err
		}
		for _, state := range []string{name, ""} {
			if err := upgrade(state); err != nil {
				t.Fatal(err)
			}
			live, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if err != nil || live.DeletionTimestamp != nil {
				t.Errorf("after an upgrade with the namespace %q it is gone, or going: %v", state, err)
			}
		}
		byHand := name + "-by-hand"
		if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: byHand}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := upgrade(byHand); err == nil || !strings.Contains(err.Error(), byHand) || !strings.Contains(err.Error(), "exist") {
			t.Errorf("the runbook says that Helm takes over no namespace that it did not create: %v", err)
		}
	})
}
