package migrationtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/pager"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// state is what the compared objects are, by "Kind.group namespace/name".
type state map[string]map[string]any

// settleLimit is how long controllers may take to finish what a run caused.
const settleLimit = 30 * time.Second

// pollInterval is the pause between two reads of a state that is not at rest.
const pollInterval = 100 * time.Millisecond

// read returns the objects of all kinds of the subject, as the API server has them, without
// those that the engine stores for itself.
func (c *cluster) read(ctx context.Context) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, kind := range c.Kinds {
		list := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return c.admin.Resource(kind).List(ctx, opts)
		})
		err := list.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
			if u, ok := obj.(*unstructured.Unstructured); ok && u.GetNamespace() != c.Options.StateNamespace {
				all = append(all, u)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("cannot list %s: %w", kind.GroupResource(), err)
		}
	}
	return all, nil
}

// content is what counts when a state is compared with another.
func (c *cluster) content(ctx context.Context) (state, error) {
	all, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	names := map[any]any{}
	for _, obj := range all {
		names[string(obj.GetUID())] = nameOf(obj)
	}
	ignored := c.ignored()
	mark := c.Options.Names.Mark()
	content := state{}
	for _, obj := range all {
		content[nameOf(obj)] = stripped(obj.DeepCopy(), names, ignored, mark)
	}
	return content, nil
}

// versions tell each write to an object, also one that changed nothing for long.
func (c *cluster) versions(ctx context.Context) (state, error) {
	all, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	versions := state{}
	for _, obj := range all {
		versions[nameOf(obj)] = map[string]any{"uid": string(obj.GetUID()), "resourceVersion": obj.GetResourceVersion()}
	}
	return versions, nil
}

func nameOf(obj *unstructured.Unstructured) string {
	kind := migration.Resource{Kind: obj.GroupVersionKind().GroupKind().String()}
	return kind.RefTo(obj).String()
}

// stripped removes what differs between two equal objects. names are those of owners by
// their UIDs, and mark is the annotation of what a run created.
func stripped(obj *unstructured.Unstructured, names map[any]any, ignored []string, mark string) map[string]any {
	delete(obj.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	for _, key := range ignored {
		if field, ok := strings.CutPrefix(key, migration.IgnoredSpec); ok {
			unstructured.RemoveNestedField(obj.Object, "spec", field)
			continue
		}
		unstructured.RemoveNestedField(obj.Object, "metadata", "labels", key)
		unstructured.RemoveNestedField(obj.Object, "metadata", "annotations", key)
	}
	if annotations := obj.GetAnnotations(); annotations[mark] != "" {
		annotations[mark] = "the run that created it"
		obj.SetAnnotations(annotations)
	}
	owners, _, _ := unstructured.NestedSlice(obj.Object, "metadata", "ownerReferences")
	for _, owner := range owners {
		if reference, ok := owner.(map[string]any); ok && names[reference["uid"]] != nil {
			reference["uid"] = names[reference["uid"]]
		}
	}
	if len(owners) > 0 {
		_ = unstructured.SetNestedSlice(obj.Object, owners, "metadata", "ownerReferences") // it was read from there
	}
	return obj.Object
}

// ignored are the keys that controllers own, as the job says.
func (c *cluster) ignored() []string {
	if ignorer, ok := c.Job().(migration.EditIgnorer); ok {
		return ignorer.IgnoredKeys()
	}
	return nil
}

// stable reads a state until two reads in a row agree: controllers may still be at work.
func stable(ctx context.Context, read func(context.Context) (state, error)) (state, error) {
	var last state
	err := wait.PollUntilContextTimeout(ctx, pollInterval, settleLimit, true, func(ctx context.Context) (bool, error) {
		now, err := read(ctx)
		same := last != nil && cmp.Equal(last, now)
		last = now
		return same, err
	})
	if err != nil {
		return nil, fmt.Errorf("the cluster does not come to rest: %w", err)
	}
	return last, nil
}

// becomes waits until the state is the wanted one, and returns what is different if it
// does not become so.
func (c *cluster) becomes(ctx context.Context, want state) (diff string, err error) {
	err = wait.PollUntilContextTimeout(ctx, pollInterval, settleLimit, true, func(ctx context.Context) (bool, error) {
		got, err := c.content(ctx)
		diff = cmp.Diff(want, got)
		return diff == "", err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = nil
	}
	return diff, err
}
