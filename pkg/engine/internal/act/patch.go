package act

import (
	"context"
	"encoding/json"

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

// patching is one patch, which is sent until it is made, or until its object is not what it was
// decided on any more.
type patching struct {
	actor        *Actor
	step         journal.Step
	client       dynamic.ResourceInterface
	subresources []string
	attempt      write.Attempt
	// basis is the object that the patch is for, as it was read last.
	basis *unstructured.Unstructured
	// first: no request can have had an effect yet.
	first  bool
	result string
}

func (a *Actor) patch(ctx context.Context, s journal.Step) (string, error) {
	p := &patching{
		actor: a, step: s, client: s.Ref.Resource.In(a.Writer.Client, s.Ref.Namespace), attempt: s.Beginning(),
		subresources: subresources(s.Subresource), basis: s.Pre().Object, first: true, result: migration.ChangeDone,
	}
	if latest := s.Latest(); latest != nil && latest.GetUID() == p.basis.GetUID() && s.Subresource == "" {
		p.basis = latest
	}
	// A call ends with the Lease; what is read after it has more time.
	err := a.Writer.Write(ctx, func(call context.Context) error { return p.send(ctx, call) })
	return p.result, err
}

func (p *patching) send(ctx, call context.Context) error {
	body, err := patch.For(p.step.Change, p.basis)
	if err != nil {
		return k8sutil.Permanent(err)
	}
	p.attempt.Sending()
	live, err := p.client.Patch(call, p.step.Ref.Name, types.MergePatchType, body, metav1.PatchOptions{}, p.subresources...)
	switch {
	case err == nil:
		return p.made(ctx, live, body)
	case p.isGone(err):
		p.result = migration.ChangeUnchanged
		return nil
	case apierrors.IsConflict(err):
		return p.lookAgain(ctx, call, err)
	}
	if p.first && !k8sutil.IsTransient(err) {
		p.attempt.Refused()
	}
	p.first = false
	return err
}

// made notes what the answer to the patch shows.
func (p *patching) made(ctx context.Context, live *unstructured.Unstructured, body []byte) error {
	a, s := p.actor, p.step
	k8sutil.Trim(live)
	a.Recorder.SetHash(s, live)
	lost, err := patch.LostOfPatch(live, body)
	if err != nil {
		return k8sutil.Permanent(err)
	}
	if len(lost) > 0 {
		sent := map[string]any{}
		if err := json.Unmarshal(body, &sent); err != nil {
			return k8sutil.Permanent(err)
		}
		sent["kind"] = live.GetKind()
		a.storedOtherwise(s.Ref, lost, live, &unstructured.Unstructured{Object: sent})
	}
	a.noteOthers(ctx, s, live.GetResourceVersion())
	if s.Subresource == "" {
		s.SetLatest(live)
	}
	return nil
}

// isGone says whether an answer is that there is nothing to patch any more. A run that was killed
// may have deleted it before the next one gets here. One that was being deleted is gone when its
// last finalizer is, which an attempt may have removed whose answer was lost.
func (p *patching) isGone(err error) bool {
	return apierrors.IsNotFound(err) && (p.step.Goes() || p.step.Pre().Object.GetDeletionTimestamp() != nil)
}

// lookAgain reads the object after a conflict: the patch is sent once more if it is still what it
// was decided on.
func (p *patching) lookAgain(ctx, call context.Context, answer error) error {
	a, s := p.actor, p.step
	live, err := write.Look(call, p.client, s.Ref.Name, p.subresources...)
	switch {
	case p.isGone(err):
		p.result = migration.ChangeUnchanged
		return nil
	case err != nil:
		return err
	}
	k8sutil.Trim(live)
	switch {
	case live.GetUID() != s.Pre().Object.GetUID():
		return p.refused(&write.ChangedError{Ref: s.Ref, Problem: "is another object than when the plan was made"})
	case s.IsShown() && !patch.IsMade(live, s.Change):
		// An earlier process had made it.
		p.attempt.Refused()
		return k8sutil.Permanent(&write.ChangedError{Ref: s.Ref, Problem: "was changed by somebody else since an interrupted run had patched it; it is left as it is"})
	case patch.IsMade(live, s.Change):
		if p.first {
			p.result = migration.ChangeUnchanged
			p.attempt.Refused()
		}
		a.Recorder.SetHash(s, live)
		a.noteOthers(ctx, s, live.GetResourceVersion())
		return nil
	}
	edited, err := p.edited(live)
	switch {
	case err != nil:
		return k8sutil.Permanent(err)
	case edited != nil:
		return p.refused(edited)
	}
	p.basis = live
	return k8sutil.Retryable(answer)
}

// refused ends the patch with the reason why it is not made.
func (p *patching) refused(why error) error {
	if p.first {
		p.attempt.Refused()
	}
	return k8sutil.Permanent(why)
}

// edited says why the object is not what the patch was decided on any more, nil if it is.
func (p *patching) edited(live *unstructured.Unstructured) (edited, err error) {
	s, pre := p.step, p.step.Pre().Object
	if s.Goes() && patch.Hash(live, p.actor.Recorder.Ignored) != patch.Hash(pre, p.actor.Recorder.Ignored) {
		return &write.ChangedError{Ref: s.Ref, Problem: "was edited after the plan was made; it is left as it is"}, nil
	}
	if edited := asDecided(s.Change, live); edited != nil || s.Object != nil {
		return edited, nil
	}
	same, err := patch.Untouched(pre, live, s.Patch)
	if err == nil && !same {
		edited = &write.ChangedError{Ref: s.Ref, Problem: "was edited after its pre-image was read; it is left as it is"}
	}
	return edited, err
}
