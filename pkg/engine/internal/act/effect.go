package act

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// NoteMade keeps what there is to know a side effect of a step by, if a controller may have made
// the object; what a person has made there is not noted.
func (a *Actor) NoteMade(s journal.Step, ref migration.Ref, live *unstructured.Unstructured) {
	if !s.Makes(live) {
		return
	}
	mark := journal.EffectMark{Ref: ref, UID: live.GetUID()}
	if !s.Entry.Read {
		// What is there after a kill may have been edited already.
		mark.Hash = patch.Hash(live, a.Recorder.Ignored)
	}
	s.NoteEffect(mark)
}

// noteOthers notes which of the side effects of a step existed when it took effect, at that
// version of its object: somebody else has made them since the journal was written.
//
// The change is made: what it was made among is noted, too, when the run has just been interrupted.
func (a *Actor) noteOthers(ctx context.Context, s journal.Step, version string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.CallTimeout)
	defer cancel()
	for _, ref := range s.Pre().Absent {
		uid, known := a.existedAt(ctx, ref, version)
		if known && uid == "" {
			continue
		}
		if s.Entry.Read {
			uid = "" // the version may be later than the change: it may be an effect
		}
		s.NoteEffect(journal.EffectMark{Ref: ref, UID: uid, Theirs: true})
	}
}

// existedAt looks for an object as it was when another one got the version: what existed then
// does not exist because of that one. uid is "" if there was none. known is false if the API
// server does not tell any more; it forgets after some minutes.
func (a *Actor) existedAt(ctx context.Context, ref migration.Ref, version string) (uid types.UID, known bool) {
	if version == "" {
		return "", false
	}
	var list *unstructured.UnstructuredList
	err := a.Writer.Read(ctx, func(ctx context.Context) (err error) {
		// Before Kubernetes 1.19 it is the limit that makes a list one of exactly this version.
		list, err = ref.Resource.In(a.Writer.Reader, ref.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + ref.Name, ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: 1,
		})
		return err
	})
	if err != nil {
		return "", false
	}
	for j := range list.Items {
		if list.Items[j].GetName() == ref.Name {
			return list.Items[j].GetUID(), true
		}
	}
	return "", true
}

// IsEffect says whether a live object is one that a controller made because of
// a step. careful: long after, so that only what the journal knows counts, unedited.
// version is that of the changed object while the change was made, "" if it is not known.
func (a *Actor) IsEffect(ctx context.Context, s journal.Step, ref migration.Ref, live *unstructured.Unstructured, careful bool, version string) (bool, error) {
	for _, known := range s.Effects() {
		if known.Ref != ref {
			continue
		}
		edited := known.Hash != patch.Hash(live, a.Recorder.Ignored)
		switch {
		case known.Theirs && known.UID == "":
			a.LeaveEffect(ref, "it did not exist before the run, and there is no proof that it was created after the change of the run")
			return false, nil
		case known.Theirs, known.UID != live.GetUID():
			return false, nil // it was there before, or somebody has made another one
		case known.Hash == "":
			a.Findings.Tell(DeletedUnproven(ref))
		case edited && careful:
			return false, &write.ChangedError{Ref: ref, Problem: "was edited after the run; it is left alone"}
		case edited:
			a.Findings.Tell(migration.Finding{
				ID: "edit-deleted", Severity: migration.Warning, Object: ref.String(),
				Problem: "deleted by the rollback, although somebody edited it after a controller had created it because of this run",
			})
		}
		return true, nil
	}
	if !s.Makes(live) {
		return false, nil // no controller has made it
	}
	if careful && s.Entry.Done {
		// It did not exist when the run ended: somebody made it later.
		a.LeaveEffect(ref, "it did not exist before the run, nor when the run ended")
		return false, nil
	}
	// It did not exist when the unit ended, or the unit did not end. What is older than
	// the journal is none of this change's doing.
	made := live.GetCreationTimestamp()
	if made.Before(&s.Entry.Chunk.Created) {
		return false, nil
	}
	if uid, told := a.existedAt(ctx, ref, version); !told || uid == live.GetUID() {
		a.LeaveEffect(ref, "it did not exist before the run, and there is no proof that it was created after the change of the run")
		return false, nil
	}
	a.Findings.Tell(DeletedUnproven(ref))
	return true, nil
}

// LeaveEffect says that an object stays which may be a side effect.
func (a *Actor) LeaveEffect(ref migration.Ref, why string) {
	a.Findings.Tell(migration.Finding{
		ID: "effect-left", Severity: migration.Warning, Object: ref.String(),
		Problem: "left as it is: " + why + ". A controller may have created it because of the run",
		Note:    "If nobody needs it, delete it.",
		Command: migration.Kubectl(ref.Namespace, "delete", ref.GroupResource().String(), ref.Name),
	})
	a.LeftEffects.Add(1)
}

// DeletedUnproven is the finding about an object that was deleted as a side effect
// although there is no proof that it is one.
func DeletedUnproven(ref migration.Ref) migration.Finding {
	return migration.Finding{
		ID: "deleted-unproven", Severity: migration.Warning, Object: ref.String(),
		Problem: "deleted: it was created after this run began, and the journal has no note whether a controller created it because of this run",
		Note:    "If a person had created it, recreate it.",
	}
}
