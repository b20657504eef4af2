package purge

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Recheck implements migration.Rechecker. Each deletion may take --delete-timeout,
// and what is made meanwhile goes with its kind.
func (j *Job) Recheck(ctx context.Context, f migration.Fresh, u *migration.Unit, i int) (*migration.Finding, error) {
	ch := &u.Changes[i]
	key := "event-bus"
	if ch.Ref.Kind == definition.Kind {
		// The deletion takes all objects of the kind with it: what another recheck has
		// read, however lately, is too old. No read has this key yet.
		key = fmt.Sprintf("event-bus at %d", time.Now().UnixNano())
	}
	s, err := migration.Shared(ctx, f, key, func(ctx context.Context, c *migration.Cluster) (*snapshot, error) {
		s := &snapshot{}
		g, ctx := errgroup.WithContext(ctx)
		s.observeUse(ctx, g, c, j.options, true)
		return s, g.Wait()
	})
	if err != nil {
		return nil, err
	}
	return recheck(s, j.options, ch), nil
}

// recheck says why a change that was decided earlier must not be made now. It is
// pure.
func recheck(s *snapshot, o options, ch *migration.Change) *migration.Finding {
	left := func(object, problem, note, command string) *migration.Finding {
		if object != "" {
			problem = object + ": " + problem
		}
		return &migration.Finding{ID: "bus-in-use-again", Severity: migration.Deferred, Object: ch.Ref.String(), Problem: "left as it is: " + problem, Note: note, Command: command}
	}
	if used := inUse(s, o); len(used) > 0 {
		return left(used[0].Object, used[0].Problem, used[0].Note, used[0].Command)
	}
	if ch.Ref.Kind != definition.Kind {
		return nil
	}
	for _, f := range s.subscriptions {
		return left(f.ref.String(), "it is still being deleted, and would go with its kind",
			"Wait until it is gone, and run the job again. Its finalizers say what holds it.", migration.Kubectl(f.ref.Namespace, "get", migration.Kind{GroupKind: kyma.Subscription}.Named(f.ref.Name), "-o", "yaml"))
	}
	for _, f := range s.foreign {
		return left(f.ref.String(), "it is no Subscription of the Event Bus, so something else uses the kind",
			"Find out what made it. If nobody needs it, delete it, and run the job again.", migration.Kubectl(f.ref.Namespace, "get", migration.Kind{GroupKind: kyma.Subscription}.Named(f.ref.Name), "-o", "yaml"))
	}
	return nil
}
