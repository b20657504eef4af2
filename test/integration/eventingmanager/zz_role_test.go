//go:build slow || soak

package eventingmanager_test

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// rare are permissions that no test of this package uses, with the reason why the operator has them.
var rare = map[string]string{
	"update apps/statefulsets":                            "an apply that is invalid is followed by an update, which a StatefulSet refuses, too",
	"update configmaps":                                   "the same, for an object whose lists hold nothing by name",
	"update secrets":                                      "the same",
	"update policy/poddisruptionbudgets":                  "the same",
	"create policy/poddisruptionbudgets":                  "with three servers: test/e2e",
	"patch policy/poddisruptionbudgets":                   "the same",
	"delete policy/poddisruptionbudgets":                  "the same",
	"get policy/poddisruptionbudgets":                     "the same",
	"delete monitoring.coreos.com/servicemonitors":        "an Eventing that is deleted while the kind is served",
	"delete security.istio.io/peerauthentications":        "the same",
	"list apiextensions.k8s.io/customresourcedefinitions": "a watch begins with a list where the API server does not stream lists",
	"patch events":                                        "an Event that is repeated",
	"create events":                                       "recorders use events.k8s.io where it is served",
	"patch events.k8s.io/events":                          "an Event that is repeated",
}

// TestRoleIsUsed comes last: all that the tests before it made the operator ask for is in the Roles of the chart, and the Roles have nothing else.
func TestRoleIsUsed(t *testing.T) {
	if run := flag.Lookup("test.run"); run != nil && run.Value.String() != "" {
		t.Skip("it looks at what all tests of the package did")
	}
	allowed := map[string]bool{}
	for _, rule := range operatorRules(t) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if group != "" {
					resource = group + "/" + resource
				}
				for _, verb := range rule.Verbs {
					allowed[verb+" "+resource] = true
				}
			}
		}
	}
	requests, err := cluster.Requests(t.Context(), 0, func(r kubernetes.Request) bool { return byOperator(r) && r.Resource != "" })
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, r := range requests {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		used[r.Verb+" "+resource] = true
	}
	for _, permission := range slices.Sorted(maps.Keys(used)) {
		if !allowed[permission] {
			t.Errorf("the operator uses %s, which its Roles do not have", permission)
		}
	}
	for _, permission := range slices.Sorted(maps.Keys(allowed)) {
		if !used[permission] && rare[permission] == "" {
			t.Errorf("the Roles have %s, which the operator does not use", permission)
		}
	}
	for permission := range rare {
		if !allowed[permission] {
			t.Errorf("%s is explained, and in no Role", permission)
		}
	}
}

// operatorRules are those of the Roles and ClusterRoles of the operator's account.
func operatorRules(t *testing.T) (rules []rbacv1.PolicyRule) {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	h, err := helm.New(t.Context(), root, 4)
	if err != nil {
		t.Fatal(err)
	}
	text, err := h.Template(t.Context(), "eventing-manager", "charts/eventing-manager", "--namespace", "kyma-system", "--kube-version", "1.36.0",
		"--set", "image.tag=test")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(text, "\n---") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(role.Kind, "Role") && role.Name == "eventing-manager" {
			rules = append(rules, role.Rules...)
		}
	}
	if len(rules) == 0 {
		t.Fatal("there are no rules")
	}
	return rules
}
