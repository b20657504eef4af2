package migration

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// TryCreate asks the API server, by a dry run, whether it would create the object
// from this pre-image, also while an object of its name exists. It needs the
// permission to create it. Nil: it would; otherwise what it answered.
func (c *Cluster) TryCreate(ctx context.Context, ref Ref, pre *unstructured.Unstructured) error {
	err := c.connection.Read(ctx, func(ctx context.Context) error {
		_, err := c.resource(ref.Resource, ref.Namespace).Create(ctx, k8sutil.Restorable(pre), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	if apierrors.IsAlreadyExists(err) {
		return nil // existence is looked at after validation and admission
	}
	return err
}
