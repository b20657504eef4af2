package act

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// revertPatch undoes a patch: our fields, unless somebody changed them since.
func (v *Reverser) revertPatch(ctx context.Context, s journal.Step) (string, error) {
	live, err := v.objects.live(ctx, s.Ref, s.Subresource, false)
	if err != nil {
		return "", err
	}
	if outcome, over, err := v.withoutPatch(s, live); over || err != nil {
		return outcome, err
	}
	at, err := v.objects.at(ctx, s.Ref, false)
	if err != nil {
		return "", err
	}
	u := &unpatching{reverser: v, step: s, client: at.Resource.In(v.actor.Writer.Client, at.Namespace), subresources: subresources(s.Subresource), live: live}
	err = v.actor.Writer.Write(ctx, u.send)
	return u.outcome, err
}

// withoutPatch says what an object that is gone, or is another one, means for the patch of it; over
// is false if the patched object is there.
func (v *Reverser) withoutPatch(s journal.Step, live *unstructured.Unstructured) (outcome string, over bool, err error) {
	pre := s.Pre().Object
	switch {
	case live == nil && (s.LeftToOthers() || v.actor.Recorder.DeletedBefore(s.Entry, pre.GetUID())):
		// An earlier unit may have begun the deletion, and this one have taken it over. The
		// pre-image of the earlier one is older than this patch.
		return "", true, nil
	case live == nil && v.actor.Recorder.RestoredUID(pre.GetUID()):
		return "", true, &write.ChangedError{Ref: s.Ref, Problem: "was deleted by somebody else"}
	case live == nil:
		// The patch has no effect now, and the deletion is none of this run's.
		s.Report(s.Result(), "its object was deleted by somebody else")
		v.actor.Findings.Tell(migration.Finding{
			ID: "deleted-by-others", Severity: migration.Warning, Object: s.Ref.String(),
			Problem: "was deleted by somebody else, so that there is nothing to undo on it",
			Note:    "If it is needed, recreate it. Its former state is in the journal:",
			Command: v.ShowJournal(),
		})
		return "", true, nil
	case live.GetUID() != pre.GetUID() && v.actor.Recorder.RestoredUID(pre.GetUID()):
		// A later change of the journal deleted it, and it is back from a pre-image
		// that was read before this patch.
		return migration.ChangeRolledBack, true, nil
	case live.GetUID() != pre.GetUID():
		return "", true, &write.ChangedError{Ref: s.Ref, Problem: "was created again by somebody else; it is left alone"}
	}
	return "", false, nil
}

// unpatching is the inverse of one patch, which is sent until it is made, or cannot be.
type unpatching struct {
	reverser     *Reverser
	step         journal.Step
	client       dynamic.ResourceInterface
	subresources []string
	// live is the object as it was read last.
	live    *unstructured.Unstructured
	outcome string
	// told: somebody's edits were found, and said.
	told bool
}

func (u *unpatching) send(ctx context.Context) error {
	v, s := u.reverser, u.step
	back, err := u.inverse()
	switch {
	case err != nil:
		return k8sutil.Permanent(err)
	case back == nil:
		return nil // never applied, or undone already
	case u.live.GetDeletionTimestamp() != nil:
		return k8sutil.Permanent(&write.ChangedError{Ref: s.Ref, Problem: "is being deleted by somebody else"})
	}
	after, err := u.client.Patch(ctx, s.Ref.Name, types.JSONPatchType, back, metav1.PatchOptions{}, u.subresources...)
	if err == nil {
		u.outcome = migration.ChangeRolledBack
		v.patchedBack(s.Ref, after)
		differ, err := patch.NotReverted(after, back)
		if err != nil {
			return k8sutil.Permanent(err)
		}
		return k8sutil.Permanent(notAsBefore(s.Ref, "was patched back", differ, after, s.Pre().Object))
	}
	if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
		if k8sutil.IsTransient(err) {
			u.outcome = migration.ChangeRolledBack // the request may have been carried out
		}
		return err
	}
	answer := err
	// A field changed on the way, or an earlier attempt was carried out.
	now, err := write.Look(ctx, u.client, s.Ref.Name, u.subresources...)
	if err != nil {
		return err
	}
	k8sutil.Trim(now)
	u.live = now
	return k8sutil.Retryable(answer)
}

// inverse is what restores the fields that the patch has changed and nobody else since; nil if
// there are none.
func (u *unpatching) inverse() ([]byte, error) {
	v, s, pre := u.reverser, u.step, u.step.Pre().Object
	back, theirs, err := patch.Inverse(pre, u.live, s.Patch)
	switch {
	case err != nil:
		return nil, err
	case theirs > 0 && v.careful:
		return nil, &write.ChangedError{Ref: s.Ref, Problem: "was edited after the run; its fields are left alone"}
	case theirs > 0 && !u.told:
		u.told = true
		v.actor.More.Add(1)
		v.actor.Findings.Tell(migration.Finding{
			ID: "edited-fields-left", Severity: migration.Warning, Object: s.Ref.String(),
			Problem: fmt.Sprintf("%s edited by somebody else in the meantime; left as they are now", migration.Count(theirs, "field")),
		})
	}
	return patch.WithListEdits(back, u.live, patch.InverseLists(pre, s.Lists))
}

// patchedBack keeps the version of an object that was patched back.
func (v *Reverser) patchedBack(ref migration.Ref, after *unstructured.Unstructured) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.versions[ref] = after.GetResourceVersion()
}

// IsUntouched says whether nobody has changed an object since it was patched back. Somebody who has
// may have made the same change, and have undone it: what a controller has made of that is his.
func (v *Reverser) IsUntouched(ctx context.Context, ref migration.Ref) bool {
	v.mu.Lock()
	version := v.versions[ref]
	v.mu.Unlock()
	live, err := v.objects.live(ctx, ref, "", true)
	return err == nil && live != nil && version != "" && live.GetResourceVersion() == version
}

// InForce is the object of a patch if it is as the run patched it, nil if it is not.
func (v *Reverser) InForce(ctx context.Context, s journal.Step) *unstructured.Unstructured {
	pre := s.Pre().Object
	live, err := v.objects.live(ctx, s.Ref, s.Subresource, false)
	if err == nil && live != nil && pre != nil && live.GetUID() == pre.GetUID() && patch.IsMade(live, s.Change) && !patch.IsMade(pre, s.Change) {
		return live
	}
	return nil
}
