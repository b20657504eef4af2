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

// workloads are the kinds that can carry live events, in the order in which they are read. Pods
// are read in addition to Deployments: those of an older revision may have no Deployment any more.
var workloads = []Resource{deployments, Pods}

// Workloads are what EachWorkload reads of a namespace, as ProtectReader names it.
func Workloads(namespace string) []Subject {
	subjects := make([]Subject, len(workloads))
	for i, r := range workloads {
		subjects[i] = SubjectOf(r.GVK().GroupKind(), namespace, "")
	}
	return subjects
}

// WorkloadAccess is the permission that EachWorkload needs in a namespace. why is the reason
// in the Roles.
func WorkloadAccess(namespace, why string) []Access {
	rows := make([]Access, len(workloads))
	for i, r := range workloads {
		rows[i] = Access{Group: r.Group, Resource: r.GroupVersionResource.Resource, Namespace: namespace, Verbs: []string{"list"}, Why: why}
	}
	return rows
}

// EachWorkload reads the workloads of a namespace; of its Pods, those that have not ended.
func EachWorkload(ctx context.Context, reader Reader, namespace string, visit func(Ref, *unstructured.Unstructured)) error {
	for _, r := range workloads {
		workload := Ref{Resource: r, Namespace: namespace}
		opts := ListOptions{PageSize: LargePage}
		if r == Pods {
			opts.FieldSelector = UnfinishedPods
		}
		err := reader.Each(ctx, r, namespace, opts, func(obj *unstructured.Unstructured) error {
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
