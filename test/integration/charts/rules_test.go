package charts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-project/eventmesh-migration/test/helm"
)

// granted are the grants of a resource: the kind of Role, its namespace, verbs, and the
// names that they are limited to.
func granted(r *rendering, account, resource string) []string {
	var all []string
	add := func(where, name string, list []rbacv1.PolicyRule) {
		if !strings.HasPrefix(name, account) {
			return
		}
		for _, rule := range list {
			if slices.Contains(rule.Resources, resource) {
				all = append(all, strings.TrimSpace(fmt.Sprintf("%s: %s %s", where, strings.Join(rule.Verbs, ","), strings.Join(rule.ResourceNames, ","))))
			}
		}
	}
	for _, role := range of[*rbacv1.Role](r) {
		add(role.Namespace, role.Name, role.Rules)
	}
	for _, role := range of[*rbacv1.ClusterRole](r) {
		add("everywhere", role.Name, role.Rules)
	}
	slices.Sort(all)
	return all
}

// Fails on the commit before: each of these verbs was for all objects of its kind.
// test/integration/rbac proves that the jobs need no more.
func TestWhatIsWrittenIsLimitedToNames(t *testing.T) {
	const brokers = "eventing-broker-ingress,eventing-broker-filter"
	each(t, func(t *testing.T, h *helm.Helm) {
		r := render(t, h)
		for _, tc := range []struct {
			account, resource string
			want              []string
		}{
			{"core-eventbus-scaledown", "deployments", []string{
				"kyma-integration: list", "kyma-system: get,patch event-bus-event-publish-service,event-bus-subscription-controller", "kyma-system: list,watch",
			}},
			{"core-trigger-sync", "pods/proxy", []string{"natss: get nats-streaming-0:8222"}},
			{"core-trigger-sync", "serviceaccounts", []string{"everywhere: get,delete " + brokers, "everywhere: list,watch"}},
			{"core-trigger-sync", "rolebindings", []string{"everywhere: get,delete " + brokers, "everywhere: list,watch", "knative-eventing: get,delete"}},
			{"core-serviceinstance-recreate", "serviceaccounts", []string{"everywhere: get,delete " + brokers, "everywhere: list,watch"}},
			{"core-serviceinstance-recreate", "rolebindings", []string{"everywhere: get,delete " + brokers, "everywhere: list,watch", "knative-eventing: get,delete"}},
		} {
			if diff := cmp.Diff(tc.want, granted(r, tc.account, tc.resource)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", tc.account, tc.resource, diff)
			}
		}
	})
}

// Fails on the commit before: there was no such value, and any port of any pod could be asked.
func TestPodsOfNATSStreamingAreNamed(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for set, want := range map[string][]string{
			"nats.pods={stan-0,stan-1}": {"natss: get stan-0:8222,stan-1:8222"},
			// A rule without names would be for all pods.
			"nats.pods=null": nil, "namespaces.nats=": nil,
		} {
			if diff := cmp.Diff(want, granted(render(t, h, "--set", set), "core-trigger-sync", "pods/proxy")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", set, diff)
			}
		}
	})
}

// Fails on the commit before: the ConfigMaps of Tiller's namespace were read wherever Helm 2 is
// not, and Policies could be made where Istio has none any more.
func TestWhatIsNotThereNeedsNoPermission(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		tiller := func(args ...string) bool {
			r := render(t, h, append([]string{"--set", "component=core"}, args...)...)
			return slices.ContainsFunc(granted(r, "core-httpsource-sync", "configmaps"), func(g string) bool { return strings.HasPrefix(g, "kube-system") })
		}
		if !tiller() || tiller("--set", "namespaces.tiller=") {
			t.Errorf("with Tiller its releases are read: %t; without: %t", tiller(), tiller("--set", "namespaces.tiller="))
		}
		want := []string{"everywhere: get,list,create,delete"}
		if diff := cmp.Diff(want, granted(render(t, h, "--api-versions", "authentication.istio.io/v1alpha1"), "core-serviceinstance-recreate", "policies")); diff != "" {
			t.Errorf("with an old Istio (-want +got):\n%s", diff)
		}
		if got := granted(render(t, h), "core-serviceinstance-recreate", "policies"); len(got) > 0 {
			t.Errorf("without an old Istio: %q", got)
		}
	})
}

// Fails on the commit before: the second release deleted the ClusterRoles of the first while its
// jobs ran.
func TestReleasesOfTheSameNameShareNothingClusterScoped(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		seen := map[string]string{}
		for _, namespace := range []string{"kyma-system", "kyma-test"} {
			out, err := h.Template(t.Context(), "core", hooksChart, "--set", "standalone=true,image.allowDevel=true,admissionPolicy.enabled=true", "--namespace", namespace, "--kube-version", modern)
			if err != nil {
				t.Fatal(err)
			}
			cluster := 0
			for _, obj := range read(t, out).objects {
				kind, name, namespaced := identity(t, obj)
				if namespaced {
					continue
				}
				cluster++
				if other, ok := seen[kind+" "+name]; ok && other != namespace {
					t.Errorf("%s %s is in the releases of %s and %s", kind, name, other, namespace)
				}
				seen[kind+" "+name] = namespace
			}
			if cluster == 0 {
				t.Error("nothing is cluster-scoped")
			}
		}
	})
}

func identity(t *testing.T, obj runtime.Object) (kind, name string, namespaced bool) {
	t.Helper()
	m, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	return obj.GetObjectKind().GroupVersionKind().Kind, m.GetName(), m.GetNamespace() != ""
}
