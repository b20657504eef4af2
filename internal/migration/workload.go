package migration

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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

// EachWorkload reads the Deployments of a namespace, and its Pods that have not
// ended: those of an older revision may have no Deployment any more.
func EachWorkload(ctx context.Context, r Reader, namespace string, visit func(Ref, *unstructured.Unstructured)) error {
	for _, of := range []struct {
		kind     Resource
		selector string
	}{
		{CoreResource("apps", "deployments", "Deployment"), ""},
		{CoreResource("", "pods", "Pod"), UnfinishedPods},
	} {
		opts := ListOptions{FieldSelector: of.selector, PageSize: LargePage}
		err := r.Each(ctx, of.kind, namespace, opts, func(obj *unstructured.Unstructured) error {
			visit(Ref{Resource: of.kind, Namespace: namespace, Name: obj.GetName()}, obj)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
