package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// objects changes and deletes the Triggers of a namespace, each one in the version that was seen.
type objects struct {
	dynamic.ResourceInterface
	namespace string
}

// mark writes metadata, as in a merge patch, if nobody has changed the Trigger meanwhile.
func (o objects) mark(ctx context.Context, is *unstructured.Unstructured, metadata map[string]any) (*unstructured.Unstructured, error) {
	metadata["resourceVersion"], metadata["uid"] = is.GetResourceVersion(), is.GetUID()
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	after, err := o.Patch(ctx, is.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot mark Trigger %s/%s: %w", o.namespace, is.GetName(), err)
	}
	return after, nil
}

// remove deletes a Trigger that no event has to come through, or lets go one that is deleted.
func (o objects) remove(ctx context.Context, is *unstructured.Unstructured) error {
	if held(is) {
		after, err := o.release(ctx, is)
		if err != nil {
			return ignoreNotFound(err)
		}
		is = after
	}
	if is.GetDeletionTimestamp() != nil {
		return nil
	}
	return o.delete(ctx, is, metav1.DeletePropagationBackground)
}

// replaced deletes a Trigger from which another one has taken over. It stays until its Channel
// posts nothing to it any more: Knative answers for a Trigger that is gone with a failure. One that
// somebody has deleted is deleted again for that.
func (o objects) replaced(ctx context.Context, former *unstructured.Unstructured) error {
	if former.GetDeletionTimestamp() != nil && !held(former) {
		return nil
	}
	err := o.delete(ctx, former, metav1.DeletePropagationForeground)
	if err != nil || !held(former) {
		return err
	}
	// The garbage collector and Knative write it, too.
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := o.Get(ctx, former.GetName(), metav1.GetOptions{})
		if err == nil && now.GetUID() == former.GetUID() {
			_, err = o.release(ctx, now)
		}
		return ignoreNotFound(err)
	})
}

// release removes the finalizer, and returns the Trigger as it is then.
func (o objects) release(ctx context.Context, is *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	others := slices.DeleteFunc(is.GetFinalizers(), func(f string) bool { return f == backend.TriggerFinalizer })
	return o.mark(ctx, is, map[string]any{"finalizers": others})
}

// delete deletes a Trigger in the version that was seen. In the foreground, that needs Knative.
func (o objects) delete(ctx context.Context, is *unstructured.Unstructured, how metav1.DeletionPropagation) error {
	uid, version := is.GetUID(), is.GetResourceVersion()
	err := o.Delete(ctx, is.GetName(), metav1.DeleteOptions{PropagationPolicy: &how, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete Trigger %s/%s: %w", o.namespace, is.GetName(), err)
	}
	return nil
}
