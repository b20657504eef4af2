package execute

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// recordEffects notes what a controller made because of a change, so that a
// rollback or an undo can tell it from what others made.
func (x *Executor) recordEffects(ctx context.Context, s journal.Step) {
	effects := s.Effects()
	since := time.Now()
	for _, ref := range s.Pre().Absent {
		if slices.ContainsFunc(effects, func(known journal.EffectMark) bool { return known.Ref == ref }) {
			continue
		}
		// One list of a kind serves all units that end at once.
		f := wait.NewFresh(x.shared, x.waiter, since)
		all, err := migration.Shared(ctx, f, "side effects: "+ref.GroupVersionResource.String(), func(ctx context.Context, c *migration.Cluster) (map[migration.Ref]*unstructured.Unstructured, error) {
			found := map[migration.Ref]*unstructured.Unstructured{}
			err := c.Each(ctx, ref.Resource, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
				found[migration.Ref{Resource: ref.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}] = obj
				return nil
			})
			return found, err
		})
		if err != nil {
			if ctx.Err() == nil {
				x.actor.Log.Warn("cannot read what a controller made; an undo will leave it", zap.String("object", ref.String()), zap.Error(err))
			}
			return
		}
		if live := all[ref]; live != nil {
			x.actor.NoteMade(s, ref, live)
		}
	}
}

// RecordLateEffects notes what controllers made only after the units had ended.
func (x *Executor) RecordLateEffects(ctx context.Context) {
	for _, e := range x.actor.Recorder.Journal.Entries() {
		for _, s := range e.Steps() {
			if len(s.Pre().Absent) > 0 && s.State().IsDone() {
				x.recordEffects(ctx, s)
			}
		}
	}
}

// sees is a condition that always holds, and notes what a controller makes because of a change as
// soon as the watches of the other conditions show it: before anybody edits it.
func sees(a *act.Actor, s journal.Step, conditions []migration.Condition) []migration.Condition {
	var watched []migration.Ref
	var on []migration.Subject
	for _, ref := range s.Pre().Absent {
		if slices.ContainsFunc(conditions, func(c migration.Condition) bool { return slices.Contains(c.On, ref.Subject()) }) {
			watched, on = append(watched, ref), append(on, ref.Subject())
		}
	}
	if len(watched) == 0 {
		return nil
	}
	return []migration.Condition{{On: on, Text: "what a controller makes", Eval: func(v migration.View) migration.Status {
		for _, ref := range watched {
			if live := v.Get(ref.Subject()); live != nil {
				a.NoteMade(s, ref, live)
			}
		}
		return migration.Status{State: migration.Met}
	}}}
}
