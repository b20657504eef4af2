package frame

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// CompleteWithin is how long a person waits for names from the cluster.
const CompleteWithin = 2 * time.Second

// CompleteNamespaces completes those of the cluster. If it does not answer in time, there are none.
func CompleteNamespaces(connect func() (*rest.Config, error)) cobra.CompletionFunc {
	return CompleteNames(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, func() string { return "" }, connect)
}

// CompleteNames completes the names of objects in a namespace, "" for all. What was read in time is
// offered.
func CompleteNames(of schema.GroupVersionResource, namespace func() string, connect func() (*rest.Config, error)) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), CompleteWithin)
		defer cancel()
		cfg, err := connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		once := func(ctx context.Context, do func(context.Context) error) error { return do(ctx) }
		_, _ = k8sutil.Page(ctx, client.Resource(of).Namespace(namespace()), metav1.ListOptions{}, once, func() { names = nil }, func(u *unstructured.Unstructured) error {
			names = append(names, u.GetName())
			return nil
		}) // nobody can be told
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
