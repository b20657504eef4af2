package scaledown

import (
	"context"
	"fmt"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Recheck implements migration.Rechecker: the pods of the first Deployment may take
// minutes to end, and the Event Bus may be needed again before the second one goes.
func (j *Job) Recheck(ctx context.Context, f migration.Fresh, u *migration.Unit, i int) (*migration.Finding, error) {
	ch := &u.Changes[i]
	// What another Deployment's recheck has read is from before that was scaled. All
	// finalizers share one, which begins when both are at 0.
	key := "event-bus before " + ch.Ref.Kind
	if ch.Ref.Kind == deployments.Kind {
		key += " " + ch.Ref.Name
	}
	s, err := migration.Shared(ctx, f, key, func(ctx context.Context, c *migration.Cluster) (*snapshot, error) {
		return observe(ctx, c, j.options, c.ExcludeNamespaces)
	})
	if err != nil {
		return nil, err
	}
	return recheck(s, j.options, ch), nil
}

// recheck says why a change that was decided earlier must not be made now. It is
// pure.
func recheck(s *snapshot, o options, ch *migration.Change) *migration.Finding {
	if len(s.migrations) > 0 {
		return s.left(ch, stockMigration(o.namespace, s.migrations[0]))
	}
	if ch.Ref.Kind != deployments.Kind {
		return recheckRelease(s, ch)
	}
	// The reason that is no part of the migration is none to run the job again for: it
	// counts only if there is no other.
	held := holds(s)
	for _, f := range held {
		if f.Severity == migration.Deferred {
			return s.left(ch, f)
		}
	}
	if len(held) > 0 {
		return s.left(ch, held[0])
	}
	for _, d := range s.bus {
		switch {
		case d.object != nil && kyma.OptedOut(d.object) && !d.down():
			return s.left(ch, optedOut(d))
		case ch.Ref.Name == o.controller && d.ref.Name == o.publisher && !d.down():
			// The intake goes first: what it takes, the controller must serve.
			return s.left(ch, migration.Finding{
				ID: "publisher-still-up", Severity: migration.Deferred, Object: d.ref.String(), Problem: "it takes events for the Event Bus, and is not at 0 yet",
				Note: "Run the job again. It scales this one down first.", Command: "eventmesh-migrate run --job=eventbus-scaledown",
			})
		}
	}
	return nil
}

// left is the finding about what is left as it is, with what an earlier
// change of the run has scaled already.
func (s *snapshot) left(ch *migration.Change, why migration.Finding) *migration.Finding {
	f := migration.Finding{ID: why.ID, Severity: migration.Deferred, Object: ch.Ref.String(), Problem: "left as it is: " + why.Problem, Note: why.Note, Command: why.Command}
	if why.Severity == migration.Warning {
		f.Severity = migration.Warning
	}
	if why.Object != "" && why.Object != f.Object {
		f.Problem = fmt.Sprintf("left as it is, because of %s: %s", why.Object, why.Problem)
	}
	for _, d := range s.bus {
		if n := d.keptReplicas(); n > 0 && d.replicas() == 0 && d.ref != ch.Ref {
			f.Problem += fmt.Sprintf("; %s is at 0 already", d.ref)
			f.Note = strings.TrimSpace(fmt.Sprintf("Scale %s up again while the Event Bus is needed. %s", d.ref.Name, f.Note))
			f.Command = d.scaleUp(n)
		}
	}
	return &f
}

// recheckRelease says why a finalizer must stay: the subscription-controller runs
// again, and has work to do when the EventActivation goes.
func recheckRelease(s *snapshot, ch *migration.Change) *migration.Finding {
	stays := func(severity migration.Severity, note, format string, args ...any) *migration.Finding {
		return &migration.Finding{
			ID: "finalizer-stays", Severity: severity, Object: ch.Ref.String(), Note: note,
			Problem: "its finalizer " + kyma.EventActivationFinalizer + " stays: " + fmt.Sprintf(format, args...),
		}
	}
	if s.excused[ch.Ref.Namespace+"/"+ch.Ref.Name] {
		return stays(migration.Info, "", "it or its namespace is no part of the migration any more")
	}
	for _, d := range s.bus {
		if !d.down() {
			return stays(migration.Deferred, "Run the job again when the Event Bus is at 0.", "%s is not at 0 any more", d.ref)
		}
	}
	return nil
}
