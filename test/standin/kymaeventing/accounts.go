package kymaeventing

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Verbs of the ClusterRoles.
var (
	reads  = []string{"get", "list", "watch"}
	writes = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
)

func may(verbs []string, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// named restricts a rule to objects of one name.
func named(name string, rule rbacv1.PolicyRule) rbacv1.PolicyRule {
	rule.ResourceNames = []string{name}
	return rule
}

// managerRules are all that eventing-manager may do.
var managerRules = []rbacv1.PolicyRule{
	may(writes, "", "configmaps", "secrets", "serviceaccounts", "services"),
	may([]string{"create", "patch"}, "", "events"),
	may(writes, "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
	may(reads, "apiextensions.k8s.io", "customresourcedefinitions"),
	may(writes, "applicationconnector.kyma-project.io", "applications"),
	may(writes, "apps", "deployments"),
	may(writes, "autoscaling", "horizontalpodautoscalers"),
	may(writes, "eventing.kyma-project.io", "subscriptions"),
	may([]string{"get", "patch", "update"}, "eventing.kyma-project.io", "subscriptions/status"),
	may(writes, "gateway.kyma-project.io", "apirules"),
	may(writes, "operator.kyma-project.io", "eventings"),
	may([]string{"update"}, "operator.kyma-project.io", "eventings/finalizers"),
	may([]string{"get", "patch", "update"}, "operator.kyma-project.io", "eventings/status"),
	may(reads, "operator.kyma-project.io", "nats"),
	may(writes, "rbac.authorization.k8s.io", "clusterroles", "clusterrolebindings"),
	may(writes, "security.istio.io", "authorizationpolicies", "peerauthentications"),
}

// publisherRules are all that the publisher may do. eventing-manager writes them, and has them.
var publisherRules = []rbacv1.PolicyRule{
	may(reads, "eventing.kyma-project.io", "subscriptions"),
	may(reads, "applicationconnector.kyma-project.io", "applications"),
}

// account is a ServiceAccount with a ClusterRole, as lifecycle-manager applies them.
func account(name, role, binding string, rules []rbacv1.PolicyRule) []string {
	text := func(object any) string {
		raw, err := yaml.Marshal(object)
		if err != nil {
			panic(err)
		}
		return string(raw)
	}
	const group = rbacv1.GroupName
	return []string{
		fmt.Sprintf(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: %s}}`, name, namespace),
		text(rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: group + "/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules}),
		text(rbacv1.ClusterRoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: group + "/v1", Kind: "ClusterRoleBinding"}, ObjectMeta: metav1.ObjectMeta{Name: binding},
			RoleRef:  rbacv1.RoleRef{APIGroup: group, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}},
		}),
	}
}

// refusals are requests that the API server has refused, because the account may not do that.
type refusals struct {
	mu  sync.Mutex
	all []string
}

func (r *refusals) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.all, what) {
		r.all = append(r.all, what)
	}
}

// Refused are the requests of all programs that the API server has refused, because their accounts
// may not do that. There are none while the stand-in does no more than Kyma's programs may.
func (k *Kyma) Refused() []string {
	k.refusals.mu.Lock()
	defer k.refusals.mu.Unlock()
	return slices.Clone(k.refusals.all)
}

// watched notes what is refused.
type watched struct {
	inner    http.RoundTripper
	program  string
	refusals *refusals
}

// RoundTrip implements http.RoundTripper.
func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := w.inner.RoundTrip(r)
	if err == nil && res.StatusCode == http.StatusForbidden {
		w.refusals.add(w.program + ": " + r.Method + " " + r.URL.Path)
	}
	return res, err
}

// startTime is how long a program waits until the API server knows what its account may do.
const startTime = 10 * time.Second

// as is a client with the account of a pod, which may list a resource. A program whose account has
// no rules does not start, as theirs, which wait for their caches.
func (k *Kyma) as(ctx context.Context, pod *corev1.Pod, lists schema.GroupVersionResource) (dynamic.Interface, error) {
	name := pod.Spec.ServiceAccountName
	token, err := k.core.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(k.options.Config)
	config.BearerToken, config.QPS = token.Status.Token, -1
	first, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(startTime); ; time.Sleep(50 * time.Millisecond) {
		_, err := first.Resource(lists).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil || apierrors.IsNotFound(err) { // not served
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("ServiceAccount %s: %w", name, err)
		}
	}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return &watched{inner: inner, program: name, refusals: &k.refusals}
	})
	return dynamic.NewForConfig(config)
}
