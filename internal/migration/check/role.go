package check

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var namespaces = migration.CoreResource("", "namespaces", "Namespace")

// reads is what check, verify, map, status and diagnose read, in addition to what the jobs do.
func reads(stateNamespace string) []migration.Access {
	var rows []migration.Access
	list := func(group, namespace string, resources ...string) {
		for _, resource := range resources {
			rows = append(rows, migration.Access{Group: group, Resource: resource, Namespace: namespace, Verbs: []string{"list"}})
		}
	}
	list("", "", "namespaces", "serviceaccounts")
	list("", stateNamespace, "configmaps")
	list("", kyma.IntegrationNamespace, "pods")
	list("", kyma.SystemNamespace, "pods")
	list("apps", kyma.IntegrationNamespace, "deployments")
	list("apps", kyma.SystemNamespace, "deployments")
	list("apps", kyma.EventingNamespace, "deployments")
	list("autoscaling", kyma.SystemNamespace, "horizontalpodautoscalers")
	list("batch", "", "jobs")
	list("rbac.authorization.k8s.io", "", "roles", "rolebindings", "clusterroles", "clusterrolebindings")
	list("admissionregistration.k8s.io", "", "validatingwebhookconfigurations", "mutatingwebhookconfigurations")
	list("applicationconnector.kyma-project.io", "", "applications", "eventactivations")
	list("eventing.kyma-project.io", "", "subscriptions")
	list("eventing.knative.dev", "", "brokers", "triggers")
	list("messaging.knative.dev", "", "channels", "subscriptions")
	list("servicecatalog.k8s.io", "", "serviceinstances", "servicebindings")
	list("servicecatalog.kyma-project.io", "", "servicebindingusages")
	list("serving.knative.dev", kyma.IntegrationNamespace, "services")
	list("sources.kyma-project.io", kyma.IntegrationNamespace, "httpsources")
	return append(rows, migration.Access{Resource: "services", Verbs: []string{"get"}}, migration.Access{Resource: "endpoints", Verbs: []string{"get"}})
}

// Needed is what an account needs that runs eventmesh-migrate with these jobs. A job that works
// on what its flags name does not say what it needs.
func Needed(jobs []jobmanager.Registration, stateNamespace string) []migration.Access {
	rows := append(reads(stateNamespace), migration.WriterState(stateNamespace)...)
	for i := range jobs {
		if accessor, ok := jobs[i].Job.(migration.Accessor); ok {
			rows = append(rows, accessor.Access()...)
		}
	}
	return rows
}

// NeededHere is Needed without what this cluster has no use for: versions that it does not
// serve, and namespaces that it does not have, in which there can be no Role.
func NeededHere(ctx context.Context, e *engine.Engine, jobs []jobmanager.Registration, stateNamespace string) ([]migration.Access, error) {
	rows, _, err := neededHere(ctx, e, jobs, stateNamespace)
	return rows, err
}

// neededHere is NeededHere, with the namespaces by name; nil if this account may not list them.
func neededHere(ctx context.Context, e *engine.Engine, jobs []jobmanager.Registration, stateNamespace string) ([]migration.Access, map[string]*unstructured.Unstructured, error) {
	rows, err := e.Applicable(ctx, Needed(jobs, stateNamespace))
	if err != nil {
		return nil, nil, err
	}
	found := map[string]*unstructured.Unstructured{}
	err = e.Cluster().Each(ctx, namespaces, "", migration.ListOptions{}, func(u *unstructured.Unstructured) error {
		found[u.GetName()] = u
		return nil
	})
	switch {
	case apierrors.IsForbidden(err):
		return rows, nil, nil // it is unknown which there are
	case err != nil:
		return nil, nil, err
	}
	return slices.DeleteFunc(rows, func(row migration.Access) bool {
		return row.Namespace != "" && row.Namespace != stateNamespace && found[row.Namespace] == nil
	}), found, nil
}

// Role writes what the rows allow: a ClusterRole, Roles, and their bindings to the user. A
// binding has the name of the user in its own, so that it replaces no other user's.
func Role(rows []migration.Access, user string) ([]byte, error) {
	// A rule for each resource and its names, with the verbs of all rows; by namespace.
	type key struct{ group, resource, names string }
	rules := map[string]map[key][]string{}
	for _, row := range rows {
		names, err := json.Marshal(row.Names)
		if err != nil {
			return nil, err
		}
		if rules[row.Namespace] == nil {
			rules[row.Namespace] = map[key][]string{}
		}
		k := key{row.Group, row.Resource, string(names)}
		rules[row.Namespace][k] = append(rules[row.Namespace][k], row.Verbs...)
	}
	binding := "eventmesh-migrate:" + strings.NewReplacer("/", "-", "%", "-").Replace(user)
	var b bytes.Buffer
	for _, namespace := range slices.Sorted(maps.Keys(rules)) {
		kind, within := "ClusterRole", ""
		if namespace != "" {
			kind, within = "Role", ", namespace: "+namespace
		}
		fmt.Fprintf(&b, "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata: {name: eventmesh-migrate%s}\nrules:\n", kind, within)
		of := rules[namespace]
		for _, k := range slices.SortedFunc(maps.Keys(of), func(a, b key) int {
			return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.resource, b.resource), strings.Compare(a.names, b.names))
		}) {
			slices.Sort(of[k])
			verbs, err := json.Marshal(slices.Compact(of[k]))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "- {apiGroups: [%q], resources: [%q], verbs: %s", k.group, k.resource, verbs)
			if k.names != "null" {
				fmt.Fprintf(&b, ", resourceNames: %s", k.names)
			}
			b.WriteString("}\n")
		}
		fmt.Fprintf(&b, "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: %[1]sBinding\nmetadata: {name: %[3]q%[2]s}\n"+
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[1]s, name: eventmesh-migrate}\n"+
			"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[4]q}]\n", kind, within, binding, user)
	}
	return b.Bytes(), nil
}
