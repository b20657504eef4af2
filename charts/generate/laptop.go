package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/registry"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// stateNamespace is the default of --state-namespace.
const stateNamespace = "eventmesh-migration"

// laptopReads is what verify, map, status and diagnose read, in addition to what the jobs do.
var laptopReads = []migration.Access{
	{Resource: "namespaces", Verbs: []string{"list"}},
	{Resource: "serviceaccounts", Verbs: []string{"list"}},
	{Resource: "configmaps", Namespace: stateNamespace, Verbs: []string{"list"}},
	{Resource: "pods", Namespace: kyma.IntegrationNamespace, Verbs: []string{"list"}},
	{Resource: "pods", Namespace: kyma.SystemNamespace, Verbs: []string{"list"}},
	{Group: "apps", Resource: "deployments", Namespace: kyma.IntegrationNamespace, Verbs: []string{"list"}},
	{Group: "apps", Resource: "deployments", Namespace: kyma.SystemNamespace, Verbs: []string{"list"}},
	{Group: "apps", Resource: "deployments", Namespace: kyma.EventingNamespace, Verbs: []string{"list"}},
	{Group: "autoscaling", Resource: "horizontalpodautoscalers", Namespace: kyma.SystemNamespace, Verbs: []string{"list"}},
	{Group: "batch", Resource: "jobs", Verbs: []string{"list"}},
	{Group: "rbac.authorization.k8s.io", Resource: "roles", Verbs: []string{"list"}},
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Verbs: []string{"list"}},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Verbs: []string{"list"}},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings", Verbs: []string{"list"}},
	{Group: "applicationconnector.kyma-project.io", Resource: "applications", Verbs: []string{"list"}},
	{Group: "applicationconnector.kyma-project.io", Resource: "eventactivations", Verbs: []string{"list"}},
	{Group: "eventing.kyma-project.io", Resource: "subscriptions", Verbs: []string{"list"}},
	{Group: "eventing.knative.dev", Resource: "brokers", Verbs: []string{"list"}},
	{Group: "eventing.knative.dev", Resource: "triggers", Verbs: []string{"list"}},
	{Group: "messaging.knative.dev", Resource: "channels", Verbs: []string{"list"}},
	{Group: "messaging.knative.dev", Resource: "subscriptions", Verbs: []string{"list"}},
	{Group: "servicecatalog.k8s.io", Resource: "serviceinstances", Verbs: []string{"list"}},
	{Group: "servicecatalog.k8s.io", Resource: "servicebindings", Verbs: []string{"list"}},
	{Group: "servicecatalog.kyma-project.io", Resource: "servicebindingusages", Verbs: []string{"list"}},
	{Group: "serving.knative.dev", Resource: "services", Namespace: kyma.IntegrationNamespace, Verbs: []string{"list"}},
	{Group: "sources.kyma-project.io", Resource: "httpsources", Namespace: kyma.IntegrationNamespace, Verbs: []string{"list"}},
}

// laptopRole is what an account needs that runs eventmesh-migrate: a ClusterRole, Roles, and their bindings.
func laptopRole(all []registry.Entry) ([]byte, error) {
	rows := slices.Concat(laptopReads, migration.WriterState(stateNamespace))
	for i := range all {
		if all[i].Chart == nil {
			continue
		}
		j, ok := all[i].Job.(migration.Accessor)
		if !ok {
			return nil, fmt.Errorf("job %s does not say what it asks for: Access is missing (access.go)", all[i].Name())
		}
		rows = append(rows, j.Access()...)
	}
	// A rule for each resource and its names, with the verbs of all rows; by namespace.
	type key struct{ group, resource, names string }
	rules := map[string]map[key][]string{}
	for _, row := range rows {
		if rules[row.Namespace] == nil {
			rules[row.Namespace] = map[key][]string{}
		}
		k := key{row.Group, row.Resource, list(row.Names)}
		rules[row.Namespace][k] = append(rules[row.Namespace][k], row.Verbs...)
	}
	var b bytes.Buffer
	b.WriteString(`# What an account needs to run eventmesh-migrate. Generated from the access.go of each job by "make charts".
# USER is the name of the account:
#   sed s/USER/me@example.com/ docs/laptop-role.yaml | kubectl apply -f -
`)
	for _, namespace := range slices.Sorted(maps.Keys(rules)) {
		kind, metadata := "ClusterRole", "{name: eventmesh-migrate}"
		if namespace != "" {
			kind, metadata = "Role", "{name: eventmesh-migrate, namespace: "+namespace+"}"
		}
		fmt.Fprintf(&b, "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata: %s\nrules:\n", kind, metadata)
		of := rules[namespace]
		for _, k := range slices.SortedFunc(maps.Keys(of), func(a, b key) int {
			return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.resource, b.resource), strings.Compare(a.names, b.names))
		}) {
			verbs := slices.Clone(of[k])
			slices.Sort(verbs)
			fmt.Fprintf(&b, "- {apiGroups: [%q], resources: [%q], verbs: %s", k.group, k.resource, list(slices.Compact(verbs)))
			if k.names != "[]" {
				fmt.Fprintf(&b, ", resourceNames: %s", k.names)
			}
			b.WriteString("}\n")
		}
		fmt.Fprintf(&b, "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: %[1]sBinding\nmetadata: %[2]s\n"+
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[1]s, name: eventmesh-migrate}\n"+
			"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: USER}]\n", kind, metadata)
	}
	return b.Bytes(), nil
}
