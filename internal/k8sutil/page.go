package k8sutil

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

// PageSize is the number of objects one list request returns at most, the
// default of kubectl.
const PageSize = 500

// restarts bounds how often a list whose continue token expired is begun again.
const restarts = 5

// Page lists everything in pages and hands each page's objects to each; a list
// whose continue token expires is begun again, and then begin is called again
// first. It returns the resource version of the list. retry repeats one page.
func Page(ctx context.Context, client Source, opts metav1.ListOptions,
	retry func(context.Context, func(context.Context) error) error,
	begin func(), each func(*unstructured.Unstructured) error,
) (string, error) {
	for attempt := 0; ; attempt++ {
		begin()
		var resourceVersion string
		p := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			var page *unstructured.UnstructuredList
			err := retry(ctx, func(ctx context.Context) error {
				var err error
				page, err = client.List(ctx, opts)
				return err
			})
			if err != nil {
				return nil, err
			}
			resourceVersion = page.GetResourceVersion()
			for i := range page.Items {
				if err := each(&page.Items[i]); err != nil {
					return nil, err
				}
			}
			// The objects are handed over; only the continue token is needed further.
			page.Items = nil
			return page, nil
		})
		// Falling back to one unpaged list would hold everything at once.
		p.FullListIfExpired = false
		if opts.Limit == 0 {
			p.PageSize = PageSize
		}
		_, _, err := p.List(ctx, opts)
		if apierrors.IsResourceExpired(err) && attempt < restarts {
			continue
		}
		return resourceVersion, err
	}
}

// Trim removes from an object what is not read here and what takes most of its
// room. What is left can restore the object.
func Trim(obj *unstructured.Unstructured) {
	unstructured.RemoveNestedField(obj.Object, "metadata", "managedFields")
}

// Key returns "namespace/name" of an object.
func Key(obj metav1.Object) string { return obj.GetNamespace() + "/" + obj.GetName() }
