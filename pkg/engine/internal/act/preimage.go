package act

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Preimages reads what the changes of a unit are about to change. last: the unit
// is made after all others, which may change what it expects.
func (a *Actor) Preimages(ctx context.Context, u *migration.Unit, last bool) ([]journal.Preimage, error) {
	pre := make([]journal.Preimage, len(u.Changes))
	g, gctx := errgroup.WithContext(ctx)
	for i := range u.Changes {
		ch := &u.Changes[i]
		g.Go(func() (err error) {
			pre[i], err = a.preimage(gctx, ch, last)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return pre, err
	}
	for _, s := range journal.NewEntry(0, *u, pre).Steps() {
		if _, deleted := s.Deletion(); !deleted && s.Verb == migration.Recreate {
			return pre, k8sutil.Permanent(fmt.Errorf("the plan recreates %s, and no change of the unit before deletes it", s.Ref))
		}
		// What is patched and then deleted must still be what the deletion was decided
		// on: the list edits of the patch alone would fit any object.
		if deletion, ok := s.DeletedBy(); ok && s.Verb == migration.Patch && deletion.Object != nil && patch.Hash(s.Pre().Object, a.Recorder.Ignored) != patch.Hash(deletion.Object, a.Recorder.Ignored) {
			return pre, &write.ChangedError{Ref: s.Ref, Problem: "was edited after the plan was made; it is left as it is"}
		}
	}
	return pre, nil
}

func (a *Actor) preimage(ctx context.Context, ch *migration.Change, last bool) (journal.Preimage, error) {
	var pre journal.Preimage
	switch ch.Verb {
	case migration.Delete:
		if pre.Object = ch.Object; pre.Object != nil {
			break
		}
		fallthrough
	case migration.Patch:
		obj, err := a.Writer.Get(ctx, ch.Ref, ch.Subresource)
		if err != nil {
			return pre, err
		}
		if obj == nil && ch.Verb == migration.Patch {
			return pre, &write.ChangedError{Ref: ch.Ref, Problem: "does not exist any more"}
		}
		if obj != nil && ch.Verb == migration.Patch && !last {
			if err := asDecided(ch, obj); err != nil {
				return pre, err
			}
		}
		pre.Object = obj
	case migration.Restart:
		deployment, err := a.Writer.Get(ctx, ch.Ref, "")
		if err != nil {
			return pre, err
		}
		if deployment == nil {
			return pre, &write.ChangedError{Ref: ch.Ref, Problem: "does not exist any more"}
		}
		if ch.Late != nil {
			break // decided when its turn comes
		}
		if pre.Pods, err = a.Writer.PodsOf(ctx, deployment, nil); err != nil {
			return pre, err
		}
	}
	if pre.Object != nil && ch.UID != "" && pre.Object.GetUID() != ch.UID {
		return pre, &write.ChangedError{Ref: ch.Ref, Problem: "is another object than when the plan was made"}
	}
	if ch.Verb == migration.Delete && pre.Object != nil {
		one, _ := a.Namespaces.Of(ctx, ch.Ref.Namespace)
		pre.NamespaceUID = one.UID
	}
	for _, ref := range ch.SideEffects {
		obj, err := a.Writer.Get(ctx, ref, "")
		if err != nil {
			return pre, err
		}
		if obj == nil {
			pre.Absent = append(pre.Absent, ref)
		}
	}
	return pre, nil
}

// asDecided says whether the fields that a patch changes are as they were when it
// was decided on. Change.Object holds them.
func asDecided(ch *migration.Change, live *unstructured.Unstructured) error {
	if ch.Object == nil || len(ch.Patch) == 0 {
		return nil
	}
	same, err := patch.Untouched(ch.Object, live, ch.Patch)
	switch {
	case err != nil:
		return err
	case same || patch.AlreadyPatched(live, ch.Patch):
		return nil
	}
	return &write.ChangedError{Ref: ch.Ref, Problem: "was edited after the plan was made; it is left as it is"}
}
