package act

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// objects finds the objects of a journal at the versions at which their kinds are served now. A
// journal names them at those at which they were served when the run wrote it.
type objects struct {
	w *write.Writer

	mu    sync.Mutex
	known map[schema.GroupVersionKind]migration.Resource
	// asked is when discovery was asked afresh.
	asked time.Time
	// later: the rollback or undo may come long after discovery was asked.
	later bool
}

// UnservedError says that nobody can tell what became of an object: no version of its kind is
// served. Its objects may exist nevertheless.
type UnservedError struct{ kind schema.GroupKind }

func (e *UnservedError) Error() string {
	return fmt.Sprintf("the API server serves no version of its kind %s (%s) now", e.kind.Kind, e.kind.Group)
}

const (
	// Looks is how often the API server is asked for an object, or a list, that it says does
	// not exist, before that is believed; LookPause is the time between two.
	Looks     = 3
	LookPause = 300 * time.Millisecond
)

// at names an object at the version at which its kind is served now. again: discovery is asked
// afresh.
func (o *objects) at(ctx context.Context, ref migration.Ref, again bool) (migration.Ref, error) {
	o.mu.Lock()
	if again = (again || o.later && o.asked.IsZero()) && time.Since(o.asked) >= LookPause; again {
		o.asked = time.Now() // for all who ask at the same time
		clear(o.known)
	}
	r, known := o.known[ref.GVK()]
	o.mu.Unlock()
	if !known {
		found, served, err := o.w.Cluster.ResolveAt(ctx, ref.GVK(), again)
		o.mu.Lock()
		defer o.mu.Unlock()
		switch {
		case err != nil:
			return ref, err
		case !served:
			delete(o.known, ref.GVK())
			return ref, &UnservedError{ref.GroupKind()}
		case o.known == nil:
			o.known = map[schema.GroupVersionKind]migration.Resource{}
		}
		o.known[ref.GVK()], r = found, found
	}
	ref.Resource = r
	return ref, nil
}

// whereServed makes op with the version at which an object is served now. It is repeated if it is
// answered "not found" as a whole, and discovery says that there is something to find: one such
// answer proves nothing.
func (o *objects) whereServed(ctx context.Context, ref migration.Ref, op func(at migration.Ref) error) error {
	at, err := o.at(ctx, ref, false)
	for look := 1; err == nil; look++ {
		err = op(at)
		if !notFoundAsAWhole(err) || look == Looks {
			break
		}
		if err := k8sutil.Sleep(ctx, LookPause); err != nil {
			return err
		}
		at, err = o.at(ctx, ref, true)
	}
	return err
}

// notFoundAsAWhole says whether an answer is about what was asked, and not about one object.
func notFoundAsAWhole(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == "" || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// live reads an object past every cache, at the version at which it is served now; nil if it does
// not exist. What is concluded from that must not follow from one answer: it is asked for again,
// with what discovery says in between. sure: the next request of the caller will tell.
func (o *objects) live(ctx context.Context, ref migration.Ref, subresource string, sure bool) (*unstructured.Unstructured, error) {
	var obj *unstructured.Unstructured
	at, err := o.at(ctx, ref, false)
	for look := 1; err == nil; look++ {
		err = o.w.Read(ctx, func(ctx context.Context) error {
			var err error
			obj, err = at.Resource.In(o.w.Reader, at.Namespace).Get(ctx, at.Name, metav1.GetOptions{}, subresources(subresource)...)
			return err
		})
		asAWhole := notFoundAsAWhole(err)
		switch {
		case !apierrors.IsNotFound(err), asAWhole && look == Looks:
			if err != nil {
				return nil, fmt.Errorf("cannot get %s: %w", ref, err)
			}
			k8sutil.Trim(obj)
			return obj, nil
		case !asAWhole && (sure || look > 1):
			return nil, nil
		}
		if err := k8sutil.Sleep(ctx, LookPause); err != nil {
			return nil, err
		}
		at, err = o.at(ctx, ref, true)
	}
	return nil, err
}

// subresources are what a request for a subresource names; "": for the object itself.
func subresources(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// isGone says whether an object does not exist any more, of which an answer says so: nil if it
// does not, and else that answer, as one that another attempt may not get.
func (o *objects) isGone(ctx context.Context, ref migration.Ref, uid types.UID, answer error) error {
	live, err := o.live(ctx, ref, "", false)
	if err != nil {
		return k8sutil.Permanent(err)
	}
	if live == nil || live.GetUID() != uid {
		return nil
	}
	return k8sutil.Retryable(answer)
}

// ofNamespace says whether "not found" is an answer about the namespace of an object.
func ofNamespace(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}
