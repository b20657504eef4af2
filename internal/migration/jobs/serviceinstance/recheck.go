package serviceinstance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Recheck implements migration.Rechecker: recreations come one after the other, so
// that the last one may be decided on long before it begins.
func (j *Job) Recheck(ctx context.Context, f migration.Fresh, u *migration.Unit, i int) (*migration.Finding, error) {
	ch := &u.Changes[i]
	if ch.Ref.Kind == namespaces.Kind {
		ns, err := migration.Shared(ctx, f, ch.Ref.String(), func(ctx context.Context, c *migration.Cluster) (*unstructured.Unstructured, error) {
			return c.Get(ctx, ch.Ref)
		})
		if err != nil {
			return nil, err
		}
		return recheckAccess(ns, ch), nil
	}
	// What another recreation's recheck has read is from before that.
	now, err := migration.Shared(ctx, f, u.ID, func(ctx context.Context, c *migration.Cluster) (*migration.Plan, error) {
		return j.plan(ctx, c, c.LeavesOut, false)
	})
	if err != nil {
		return nil, err
	}
	return recheck(now, u), nil
}

// recheck says why a recreation that was decided earlier must not begin now, when
// this is the plan. It is pure.
func recheck(now *migration.Plan, u *migration.Unit) *migration.Finding {
	left := func(advice migration.Advice, format string, args ...any) *migration.Finding {
		return &migration.Finding{
			ID: "changed-meanwhile", Severity: migration.Deferred, Object: u.ID, Problem: "left as it is: " + fmt.Sprintf(format, args...),
			Note: advice.Note, Command: advice.Command,
		}
	}
	decides := again("Run the job again. It decides on what is there then.")
	for k := range now.Units {
		if now.Units[k].ID != u.ID {
			continue
		}
		then, deletes := deletions(u), deletions(&now.Units[k])
		for _, ch := range deletes {
			i := slices.IndexFunc(then, func(before *migration.Change) bool { return before.Ref == ch.Ref })
			switch {
			case i < 0:
				return left(decides, "%s was made after the plan", ch.Ref)
			case then[i].UID != ch.UID:
				return left(decides, "%s was created again after the plan", ch.Ref)
			}
		}
		for _, before := range then {
			if !slices.ContainsFunc(deletes, func(ch *migration.Change) bool { return ch.Ref == before.Ref }) {
				return left(decides, "%s was deleted after the plan, or belongs to it no more", before.Ref)
			}
		}
		return nil
	}
	for _, f := range now.Findings {
		if f.Object == u.ID {
			return left(f.Advice(), "%s", f.Problem)
		}
	}
	for _, f := range now.Findings {
		if f.Severity == migration.Error {
			return left(f.Advice(), "%s", f.Problem)
		}
	}
	return left(decides, "it need not be recreated any more")
}

// deletions are the changes of a unit that delete.
func deletions(u *migration.Unit) []*migration.Change {
	var all []*migration.Change
	for i := range u.Changes {
		if u.Changes[i].Verb == migration.Delete {
			all = append(all, &u.Changes[i])
		}
	}
	return all
}

// recheckAccess says why the label of a namespace is not to be set again.
func recheckAccess(ns *unstructured.Unstructured, ch *migration.Change) *migration.Finding {
	stays := func(problem string) *migration.Finding {
		return &migration.Finding{ID: "access-label-left", Severity: migration.Info, Object: ch.Ref.String(), Problem: "its label " + kyma.AccessLabel + " is not set again: " + problem}
	}
	var sets unstructured.Unstructured
	if err := json.Unmarshal(ch.Patch, &sets.Object); err != nil {
		return stays(err.Error())
	}
	switch {
	case ns == nil || ns.GetUID() != ch.UID || ns.GetDeletionTimestamp() != nil:
		return stays("the namespace is being deleted, or is another one")
	case ns.GetLabels()[kyma.AccessLabel] == "" || ns.GetLabels()[kyma.AccessLabel] == sets.GetLabels()[kyma.AccessLabel]:
		return nil
	}
	return stays(fmt.Sprintf("somebody has set it to %q", ns.GetLabels()[kyma.AccessLabel]))
}
