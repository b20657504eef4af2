package migration

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Fresh is what a recheck reads the cluster through. All rechecks of a run share
// their reads, so that a thousand of them cost a few requests. See Shared for reads that
// no watch serves.
type Fresh interface {
	Discovery
	// Watched returns all objects of a kind in a namespace ("" for all), as a watch
	// shows them now. The first call lists them, unless the plan did. They are shared
	// and must not be changed.
	Watched(ctx context.Context, r Resource, namespace string) ([]*unstructured.Unstructured, error)
	// WatchedEach is Watched for kinds with very many objects: it hands over one after the
	// other.
	WatchedEach(ctx context.Context, r Resource, namespace string, fn func(*unstructured.Unstructured)) error
	// WatchedOne is Watched of one object; nil if it does not exist.
	WatchedOne(ctx context.Context, ref Ref) (*unstructured.Unstructured, error)
	// Shared returns what read returns, from this call or from another recheck's that
	// began at most 2 s ago and after everything that the unit waited for. Calls of one
	// key share one read at a time, and begin at most two in a second. What is returned
	// is shared and must not be changed. The Cluster is a new one in each call of read.
	//
	// Large kinds are better watched.
	Shared(ctx context.Context, key string, read func(context.Context, *Cluster) (any, error)) (any, error)
}

// Shared is Fresh.Shared for a read that returns a T.
func Shared[T any](ctx context.Context, f Fresh, key string, read func(context.Context, *Cluster) (T, error)) (T, error) {
	v, err := f.Shared(ctx, key, func(ctx context.Context, c *Cluster) (any, error) { return read(ctx, c) })
	if err != nil {
		var none T
		return none, err
	}
	return v.(T), nil
}
