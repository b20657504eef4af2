package kubernetes

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ListWatch is for informers that work on every API server: they list, and then watch. Left to
// themselves they ask for a watch that begins with the list. Before Kubernetes 1.27 an API server
// does not know that question, answers with another watch, and the informer waits for the end of a
// list that does not come. A selection narrows both.
func ListWatch[L runtime.Object](
	list func(context.Context, metav1.ListOptions) (L, error), follow func(context.Context, metav1.ListOptions) (watch.Interface, error),
	selections ...func(*metav1.ListOptions),
) cache.ListerWatcher {
	selected := func(opts metav1.ListOptions) metav1.ListOptions {
		for _, selection := range selections {
			selection(&opts)
		}
		return opts
	}
	return &listWatch{cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return list(ctx, selected(opts))
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return follow(ctx, selected(opts))
		},
	}}
}

type listWatch struct{ cache.ListWatch }

// IsWatchListSemanticsUnSupported is what informers ask.
func (*listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// IgnoreNotFound is nil for an answer that there is no such object, and else the error.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
