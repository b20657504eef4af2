//go:build slow || soak

package eventingmanager_test

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-project/eventmesh-migration/test/eventingpods"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// rare are permissions of each program that no test of this package uses, with the reason why the
// program has them.
var rare = map[string]map[string]string{
	eventingpods.Manager: {
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
		"list serviceaccounts":                                "the same",
		"patch events":                                        "an Event that is repeated",
		"delete pods":                                         "an Eventing that is deleted while its StatefulSet is replaced: internal/eventing/decide",
		"create events":                                       "recorders use events.k8s.io where it is served",
		"patch events.k8s.io/events":                          "an Event that is repeated",
		"update services":                                     "as with configmaps, unless a port was edited",
		"update apps/deployments":                             "the same",
		"patch eventing.knative.dev/brokers":                  "test/e2e",
		"update eventing.knative.dev/brokers":                 "an apply that is invalid is followed by an update",
		"get eventing.kyma-project.io/subscriptions":          "a controller that is gone has left its finalizer: internal/eventing/decide",
		"patch eventing.kyma-project.io/subscriptions":        "the same",
		"get eventing.knative.dev/triggers":                   "a controller that is gone has left one",
		"delete eventing.knative.dev/triggers":                "the same",
		"patch eventing.knative.dev/triggers":                 "the same",
		"get autoscaling/horizontalpodautoscalers":            "one that was there when the watch began",
		"update autoscaling/horizontalpodautoscalers":         "the same",
	},
	eventingpods.Controller: {
		"get eventing.knative.dev/brokers":     "on the mesh: test/integration/eventing",
		"get eventing.knative.dev/triggers":    "the same",
		"list eventing.knative.dev/triggers":   "the same",
		"watch eventing.knative.dev/triggers":  "the same",
		"create eventing.knative.dev/triggers": "the same",
		"patch eventing.knative.dev/triggers":  "the same",
		"patch configmaps":                     "the same",
		"list configmaps":                      "a watch begins with a list where the API server does not stream lists",
		"list services":                        "the same",
		"delete eventing.knative.dev/triggers": "the same",
		"create events":                        "recorders use events.k8s.io where it is served",
		"patch events":                         "the same",
		"create events.k8s.io/events":          "an Event about the election",
		"patch events.k8s.io/events":           "an Event that is repeated",

		"create authentication.k8s.io/tokenreviews":        "somebody looks at dead letters: test/integration/kubectleventing",
		"create authorization.k8s.io/subjectaccessreviews": "the same",
	},
	eventingpods.Publisher: {
		"watch applicationconnector.kyma-project.io/applications": "the kind is served: test/integration/eventing",
	},
}

// TestRoleIsUsed comes last: all that the tests before it made a program ask for is in its Roles of
// the chart, and the Roles have nothing else.
func TestRoleIsUsed(t *testing.T) {
	if run := flag.Lookup("test.run"); run != nil && run.Value.String() != "" {
		t.Skip("it looks at what all tests of the package did")
	}
	for program, rare := range rare {
		t.Run(program, func(t *testing.T) {
			roleIsUsed(t, program, rare)
		})
	}
}

func roleIsUsed(t *testing.T, program string, rare map[string]string) {
	t.Helper()
	allowed := map[string]bool{}
	for _, rule := range rulesOf(t, program) {
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
	// The operator runs as the administrator here; the others run in pods, with their own accounts.
	mine := func(r kubernetes.Request) bool { return strings.HasSuffix(r.User, ":"+program) }
	if program == eventingpods.Manager {
		mine = byOperator
	}
	requests, err := cluster.Requests(t.Context(), 0, func(r kubernetes.Request) bool { return mine(r) && r.Resource != "" })
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
			t.Errorf("the program uses %s, which its Roles do not have", permission)
		}
	}
	for _, permission := range slices.Sorted(maps.Keys(allowed)) {
		if !used[permission] && rare[permission] == "" {
			t.Errorf("the Roles have %s, which the program does not use", permission)
		}
	}
	for permission := range rare {
		if !allowed[permission] {
			t.Errorf("%s is explained, and in no Role", permission)
		}
	}
}

// rulesOf are those of the Roles and ClusterRoles of a program's account.
func rulesOf(t *testing.T, program string) (rules []rbacv1.PolicyRule) {
	t.Helper()
	for _, u := range rendered(t, "kyma-system", "eventing") {
		var role rbacv1.ClusterRole
		if !strings.HasSuffix(u.GetKind(), "Role") || !strings.HasSuffix(":"+u.GetName(), ":"+program) {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role); err != nil {
			t.Fatal(err)
		}
		rules = append(rules, role.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("there are no rules")
	}
	return rules
}
