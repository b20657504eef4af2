package act

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// IsEffect says whether a live object is one that a controller made because of
// change i. careful: long after, so that only what the journal knows counts, unedited.
func (a *Actor) IsEffect(e *journal.Entry, i int, ref migration.Ref, live *unstructured.Unstructured, careful bool) (bool, error) {
	a.Recorder.Mu.Lock()
	effects := e.Steps[i].Effects
	a.Recorder.Mu.Unlock()
	for _, known := range effects {
		if known.Ref != ref {
			continue
		}
		edited := known.Hash != patch.Hash(live, a.Recorder.Ignored)
		switch {
		case known.UID == live.GetUID() && known.Hash == "":
			a.Findings.Tell(DeletedUnproven(ref))
		case known.UID != live.GetUID():
			return false, nil // it was deleted, and somebody made another one
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
	if careful && e.Done {
		// It did not exist when the run ended: somebody made it later.
		a.Findings.Tell(migration.Finding{
			ID: "effect-left", Severity: migration.Warning, Object: ref.String(),
			Problem: "left as it is: it did not exist before the run, nor when the run ended. A controller may have created it because of the run",
			Note:    "If nobody needs it, delete it.",
			Command: migration.Kubectl(ref.Namespace, "delete", ref.GroupResource().String(), ref.Name),
		})
		a.LeftEffects.Add(1)
		return false, nil
	}
	// It did not exist when the unit ended, or the unit did not end. What is older than
	// the journal is none of this change's doing.
	made := live.GetCreationTimestamp()
	if made.Before(&e.Chunk.Created) {
		return false, nil
	}
	a.Findings.Tell(DeletedUnproven(ref))
	return true, nil
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
