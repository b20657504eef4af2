package migration

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Pods is the one kind the engine reads on its own account, for Restart.
var Pods = Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod"}

// UnfinishedPods selects the Pods that may still do something, terminating ones
// among them. An evicted Pod stays for ever, with its arguments, and does nothing.
const UnfinishedPods = "status.phase!=Succeeded,status.phase!=Failed"

// LargePage is the page size for objects that are large, such as a Pod with its
// sidecar.
const LargePage = 100

// Reader reads a kind a page at a time: see Cluster.Each.
type Reader interface {
	Each(context.Context, Resource, string, ListOptions, func(*unstructured.Unstructured) error) error
}

var deployments = CoreResource("apps", "deployments", "Deployment")

// Workloads are what EachWorkload reads of a namespace, as ProtectReader names it.
func Workloads(namespace string) []Subject {
	return []Subject{
		{GroupKind: deployments.GroupKind(), Namespace: namespace},
		{GroupKind: Pods.GroupKind(), Namespace: namespace},
	}
}

// EachWorkload reads the Deployments of a namespace, and its Pods that have not
// ended: those of an older revision may have no Deployment any more.
func EachWorkload(ctx context.Context, r Reader, namespace string, visit func(Ref, *unstructured.Unstructured)) error {
	for _, workload := range []Ref{{Resource: deployments, Namespace: namespace}, {Resource: Pods, Namespace: namespace}} {
		opts := ListOptions{PageSize: LargePage}
		if workload.Kind == Pods.Kind {
			opts.FieldSelector = UnfinishedPods
		}
		err := r.Each(ctx, workload.Resource, namespace, opts, func(obj *unstructured.Unstructured) error {
			workload.Name = obj.GetName()
			visit(workload, obj)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
