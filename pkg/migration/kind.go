package migration

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind that a job deals with, and how the API server serves it.
type Kind struct {
	schema.GroupKind
	Resource Resource
	Served   bool
}

// Subject names an object of the kind for a Condition.
func (k Kind) Subject(namespace, name string) Subject { return SubjectOf(k.GroupKind, namespace, name) }

// Ref names an object of the kind, also if the kind is not served.
func (k Kind) Ref(namespace, name string) Ref {
	r := Ref{Resource: k.Resource, Namespace: namespace, Name: name}
	r.Kind = k.Kind
	return r
}

// RefTo is the Ref of an object.
func (k Kind) RefTo(obj *unstructured.Unstructured) Ref {
	return k.Ref(obj.GetNamespace(), obj.GetName())
}

// Discovery says how a kind is served: see Cluster.Served.
type Discovery interface {
	Served(context.Context, schema.GroupKind) (Resource, bool, error)
}

// Discover fills in how each kind is served.
func Discover(ctx context.Context, d Discovery, kinds ...*Kind) error {
	for _, k := range kinds {
		r, served, err := d.Served(ctx, k.GroupKind)
		if err != nil {
			return err
		}
		k.Resource, k.Served = r, served
	}
	return nil
}

// CoreResource is one of a group that every Kubernetes serves at v1 (since 1.9):
// to ask discovery for it would cost a request.
func CoreResource(group, plural, kind string) Resource {
	return Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}, Kind: kind}
}

// core are the kinds that every Kubernetes serves at v1, with their plural.
var core = map[schema.GroupKind]string{
	{Kind: "Namespace"}:                     "namespaces",
	{Kind: "Pod"}:                           "pods",
	{Kind: "Service"}:                       "services",
	{Kind: "ServiceAccount"}:                "serviceaccounts",
	{Kind: "Secret"}:                        "secrets",
	{Kind: "ConfigMap"}:                     "configmaps",
	{Kind: "PersistentVolumeClaim"}:         "persistentvolumeclaims",
	{Group: "apps", Kind: "Deployment"}:     "deployments",
	{Group: "apps", Kind: "ReplicaSet"}:     "replicasets",
	{Group: "apps", Kind: "StatefulSet"}:    "statefulsets",
	{Group: "apps", Kind: "DaemonSet"}:      "daemonsets",
	{Group: "batch", Kind: "Job"}:           "jobs",
	{Group: rbacGroup, Kind: "Role"}:        "roles",
	{Group: rbacGroup, Kind: "RoleBinding"}: "rolebindings",
}

const rbacGroup = "rbac.authorization.k8s.io"

// coreResource returns how a kind of Kubernetes itself is served, false if it is none.
func coreResource(gk schema.GroupKind) (Resource, bool) {
	plural, ok := core[gk]
	return CoreResource(gk.Group, plural, gk.Kind), ok
}

// Named spells an object of the kind for kubectl, with the group: Kyma's and
// Knative's Subscriptions share their name, and so do their short names.
func (k Kind) Named(name string) string {
	return strings.ToLower(k.Kind) + "." + k.Group + "/" + name
}

// Describe is the command that shows an object of the kind, and its Events.
func (k Kind) Describe(namespace, name string) string {
	return Kubectl(namespace, "describe", k.Named(name))
}
