package migration

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Fresh is what one recheck reads the cluster through. All rechecks of a run share
// their reads, so that a thousand of them cost a few requests. See Shared for reads that
// no watch serves.
//
// The age of an answer is that of what was read for it: no request leaves that acts on what was
// read more than 2 s before, to which the time that reading took is added, up to 10 s.
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
	// goes on, or ended at most 1 s ago, and began after everything that the unit waited for.
	// Calls of one key share one read at a time, and begin at most two in a second. What is
	// returned is shared and must not be changed. The Cluster is a new one in each call of read.
	//
	// Large kinds are better watched.
	Shared(ctx context.Context, key string, read func(context.Context, *Cluster) (any, error)) (any, error)
}

// AskLaterError is what a Recheck returns that can answer only when time has passed. It is asked
// again then, and reads again: what it read before the pause is no part of its answer.
type AskLaterError struct{ After time.Duration }

func (e *AskLaterError) Error() string { return fmt.Sprintf("ask again in %s", e.After) }

// Shared is Fresh.Shared for a read that returns a T.
func Shared[T any](ctx context.Context, f Fresh, key string, read func(context.Context, *Cluster) (T, error)) (T, error) {
	v, err := f.Shared(ctx, key, func(ctx context.Context, c *Cluster) (any, error) { return read(ctx, c) })
	if err != nil {
		var none T
		return none, err
	}
	return v.(T), nil
}
