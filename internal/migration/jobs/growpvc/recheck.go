package growpvc

import (
	"context"
	"fmt"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Recheck implements migration.Rechecker: between the plan and the deletion of the
// StatefulSet it may have been edited, and its claims may have become such that they
// cannot grow.
func (j *Job) Recheck(ctx context.Context, f migration.Fresh, u *migration.Unit, i int) (*migration.Finding, error) {
	s, err := migration.Shared(ctx, f, "statefulset", func(ctx context.Context, c *migration.Cluster) (*snapshot, error) {
		return observe(ctx, c, j.options)
	})
	if err != nil {
		return nil, err
	}
	return recheck(s, j.options, &u.Changes[i]), nil
}

var again = migration.Advice{Note: "Run the job again. It decides on what is there then."}

// recheck says why the deletion of the StatefulSet, decided earlier, must not be
// made now. It is pure.
func recheck(s *snapshot, o options, ch *migration.Change) *migration.Finding {
	left := func(advice migration.Advice, format string, args ...any) *migration.Finding {
		return &migration.Finding{
			ID: "changed-meanwhile", Severity: migration.Deferred, Object: ch.Ref.String(), Problem: "left as it is: " + fmt.Sprintf(format, args...),
			Note: advice.Note, Command: advice.Command,
		}
	}
	switch {
	case s.set == nil || s.set.GetUID() != ch.UID || s.set.GetDeletionTimestamp() != nil:
		return nil // there is nothing left to delete: the engine sees to the rest
	case ch.Object != nil && s.set.GetGeneration() != ch.Object.GetGeneration():
		return left(again, "it was edited after the plan was made (generation %d, now %d)",
			ch.Object.GetGeneration(), s.set.GetGeneration())
	}
	now := decide(s, o)
	for _, f := range now.Findings {
		if f.Severity == migration.Error {
			return left(f.Advice(), "%s: %s", f.Object, f.Problem)
		}
	}
	for k := range now.Units {
		if now.Units[k].ID == ch.Ref.String() {
			return nil
		}
	}
	return left(again, "it needs no larger template any more")
}
