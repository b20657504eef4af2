package model

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Job decides over a world as the real jobs decide over Kyma: what is left to do
// follows from the cluster alone.
//
//   - For each Source a Sink is made from its spec and awaited; then, while the
//     switch says "mesh", the Source is deleted.
//   - Each namespace gets a label, upon which controllers make a Broker.
//   - The Worker is scaled to 0 while the switch says "mesh".
//   - Each Instance of class old is deleted and created again, of class new.
//   - A Registry is deleted with all its Entries, once no others are left.
//   - A Channel is deleted when the last Source on it is gone.
type Job struct {
	World *World
	// Blunt writes whole lists, and plain patches without what they were decided on,
	// as jobs did before Change.Lists.
	Blunt bool

	// then, if not nil, is called right after each plan.
	then func()

	mu sync.Mutex
	// planned are the times at which a plan was begun and made.
	planned []span
	// looked are the reads that rechecks share.
	looked []look
}

// look is one read for several rechecks: when the one asked that made it, and when it began and
// ended.
type look struct {
	asked time.Time
	span
}

type span struct{ began, ended time.Time }

var (
	_ migration.Job       = (*Job)(nil)
	_ migration.Rechecker = (*Job)(nil)
)

// Name implements migration.Job.
func (j *Job) Name() string { return "model" }

// Doc implements migration.Job.
func (j *Job) Doc() (short, long string) { return "moves a model world", "" }

// Plan implements migration.Job.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	began := time.Now()
	w := j.World
	p := &migration.Plan{Parallelism: w.Parallelism, Serial: w.Serial}
	mode, err := switchMode(ctx, c, w)
	if err != nil {
		return nil, err
	}
	for _, space := range w.Spaces {
		if err := j.planNamespace(ctx, c, p, space); err != nil {
			return nil, err
		}
	}
	if err := j.planSources(ctx, c, p, w.Spaces[0], mode); err != nil {
		return nil, err
	}
	if err := j.planInstances(ctx, c, p, w.Spaces[0]); err != nil {
		return nil, err
	}
	if err := j.planWorker(ctx, c, p, w.Spaces[0], mode); err != nil {
		return nil, err
	}
	if err := j.planRegistry(ctx, c, p, w.Spaces[0], mode); err != nil {
		return nil, err
	}
	j.mu.Lock()
	j.planned = append(j.planned, span{began, time.Now()})
	j.mu.Unlock()
	// What comes after the plan comes later, also by a clock that stands still.
	time.Sleep(time.Millisecond)
	if j.then != nil {
		j.then()
	}
	return p, nil
}

func switchMode(ctx context.Context, c *migration.Cluster, w *World) (string, error) {
	obj, err := c.Get(ctx, migration.Ref{Resource: configMaps, Namespace: w.Spaces[0], Name: "switch"})
	if err != nil || obj == nil {
		return "", err
	}
	mode, _, _ := unstructured.NestedString(obj.Object, "data", "mode")
	return mode, nil
}

func deferred(ref migration.Ref, problem string) migration.Finding {
	return migration.Finding{Severity: migration.Deferred, Object: ref.String(), Problem: problem, Note: "run it again later"}
}

func (j *Job) planNamespace(ctx context.Context, c *migration.Cluster, p *migration.Plan, space string) error {
	ref := migration.Ref{Resource: namespaces, Name: space}
	obj, err := c.Get(ctx, ref)
	if err != nil || obj == nil {
		return err
	}
	switch value, set := obj.GetLabels()[label]; {
	case value == "enabled":
		p.Units = append(p.Units, migration.Unit{ID: "wait-" + space, Changes: []migration.Change{{Verb: migration.Await, Ref: sideEffects(space)[0]}}})
	case set:
		p.Findings = append(p.Findings, deferred(ref, fmt.Sprintf("its label says %q: somebody decided so", value)))
	default:
		p.Units = append(p.Units, migration.Unit{ID: "label-" + space, Changes: []migration.Change{{
			Verb: migration.Patch, Ref: ref, UID: obj.GetUID(), Object: j.basis(obj),
			Patch: []byte(`{"metadata":{"labels":{"` + label + `":"enabled"}}}`), SideEffects: sideEffects(space), SideEffectLabels: map[string]string{injected: "true"},
			Why: "it has no label",
		}}})
	}
	return nil
}

// basis is what a patch was decided on.
func (j *Job) basis(obj *unstructured.Unstructured) *unstructured.Unstructured {
	if j.Blunt {
		return nil
	}
	return obj
}

func (j *Job) planSources(ctx context.Context, c *migration.Cluster, p *migration.Plan, space, mode string) error {
	all, err := listed(ctx, c, sources, space)
	if err != nil {
		return err
	}
	made, err := listed(ctx, c, sinks, space)
	if err != nil {
		return err
	}
	bySink := map[string]*unstructured.Unstructured{}
	for _, sink := range made {
		bySink[sink.GetName()] = sink
	}
	for _, source := range all {
		name := source.GetName()
		ref := migration.Ref{Resource: sources, Namespace: space, Name: name}
		to := migration.Ref{Resource: sinks, Namespace: space, Name: name}
		unit := migration.Unit{ID: "sync-" + name, Independent: j.World.Independent}
		sink := bySink[name]
		switch {
		case source.GetDeletionTimestamp() != nil:
			p.Findings = append(p.Findings, deferred(ref, "it is being deleted"))
			continue
		case sink != nil && sink.GetDeletionTimestamp() != nil:
			p.Findings = append(p.Findings, deferred(ref, "its Sink is being deleted"))
			continue
		case sink == nil, !fits(source, sink) && c.Made(sink):
			unit.Changes = append(unit.Changes, migration.Change{Verb: migration.Create, Ref: to, Object: sinkOf(source), Why: "it has none"})
		case !fits(source, sink):
			p.Findings = append(p.Findings, deferred(ref, "the Sink of its name is for another endpoint"))
			continue
		default:
			unit.Changes = append(unit.Changes, migration.Change{Verb: migration.Await, Ref: to})
		}
		if mode != "mesh" {
			p.Findings = append(p.Findings, deferred(ref, "it is not deleted yet: the switch does not say mesh"))
		} else {
			guard := true
			if has(source.GetFinalizers(), dead) {
				ch := migration.Change{Verb: migration.Patch, Ref: ref, UID: source.GetUID(), Object: j.basis(source), Guard: true, Lists: migration.RemoveFinalizer(dead), Why: "its controller is gone"}
				if j.Blunt {
					rest := without(source.GetFinalizers(), dead)
					if rest == nil {
						rest = []string{}
					}
					raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": rest}})
					if err != nil {
						return err
					}
					ch.Lists, ch.Patch = nil, raw
				}
				unit.Changes = append(unit.Changes, ch)
				guard = false
			}
			unit.Changes = append(unit.Changes, migration.Change{
				Verb: migration.Delete, Ref: ref, UID: source.GetUID(), Object: source, Guard: guard, Why: "its Sink takes its place",
			})
		}
		p.Units = append(p.Units, unit)
	}
	return j.planChannels(ctx, c, p, all, mode)
}

// planChannels deletes each Channel after the last Source on it, and those on which no Source is
// any more.
func (j *Job) planChannels(ctx context.Context, c *migration.Cluster, p *migration.Plan, left []*unstructured.Unstructured, mode string) error {
	if len(j.World.Channels) == 0 || mode != "mesh" {
		return nil
	}
	all, err := listed(ctx, c, channels, j.World.Spaces[0])
	if err != nil {
		return err
	}
	for _, channel := range all {
		ref := channels.RefTo(channel)
		if channel.GetDeletionTimestamp() != nil {
			p.Findings = append(p.Findings, deferred(ref, "it is being deleted"))
			continue
		}
		unit := migration.Unit{ID: "free-" + ref.Name, Independent: j.World.Independent}
		stays := false
		for _, source := range left {
			if !slices.Contains(j.World.sourcesOf(ref.Name), source.GetName()) {
				continue
			}
			id := "sync-" + source.GetName()
			if slices.ContainsFunc(p.Units, func(u migration.Unit) bool { return u.ID == id }) {
				unit.Follows = append(unit.Follows, id)
			} else {
				stays = true
			}
		}
		if stays {
			p.Findings = append(p.Findings, deferred(ref, "a Source on it stays"))
			continue
		}
		if len(unit.Follows) > 0 {
			unit.Changes = append(unit.Changes, migration.Change{Verb: migration.Await, Ref: ref, Why: "its last Sources are about to go"})
		}
		unit.Changes = append(unit.Changes, migration.Change{Verb: migration.Delete, Ref: ref, UID: channel.GetUID(), Object: channel, Guard: true, Why: "no Source is on it"})
		p.Units = append(p.Units, unit)
	}
	return nil
}

// sinkOf is the Sink for a Source.
func sinkOf(source *unstructured.Unstructured) *unstructured.Unstructured {
	endpoint, _, _ := unstructured.NestedString(source.Object, "spec", "endpoint")
	return object(sinks, source.GetNamespace(), source.GetName(), map[string]any{"spec": map[string]any{"endpoint": endpoint}})
}

func fits(source, sink *unstructured.Unstructured) bool {
	return reflect.DeepEqual(source.Object["spec"], sink.Object["spec"])
}

func (j *Job) planInstances(ctx context.Context, c *migration.Cluster, p *migration.Plan, space string) error {
	all, err := listed(ctx, c, instances, space)
	if err != nil {
		return err
	}
	for _, obj := range all {
		ref := migration.Ref{Resource: instances, Namespace: space, Name: obj.GetName()}
		class, _, _ := unstructured.NestedString(obj.Object, "spec", "class")
		switch {
		case obj.GetDeletionTimestamp() != nil:
			p.Findings = append(p.Findings, deferred(ref, "it is being deleted"))
		case class == "new":
			p.Units = append(p.Units, migration.Unit{ID: "wait-" + obj.GetName(), Changes: []migration.Change{{Verb: migration.Await, Ref: ref}}})
		default:
			p.Units = append(p.Units, migration.Unit{ID: "recreate-" + obj.GetName(), Commit: true, Changes: []migration.Change{
				{Verb: migration.Delete, Ref: ref, UID: obj.GetUID(), Object: obj, Why: "it is of the old class"},
				{Verb: migration.Create, Ref: ref, Object: renewed(obj), Why: "in the place of the former one"},
			}})
		}
	}
	return nil
}

// renewed is an Instance as it is created again.
func renewed(obj *unstructured.Unstructured) *unstructured.Unstructured {
	spec, _, _ := unstructured.NestedMap(obj.Object, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	spec["class"] = "new"
	after := object(instances, obj.GetNamespace(), obj.GetName(), map[string]any{"spec": spec})
	after.SetLabels(obj.GetLabels())
	return after
}

func (j *Job) planWorker(ctx context.Context, c *migration.Cluster, p *migration.Plan, space, mode string) error {
	ref := migration.Ref{Resource: workers, Namespace: space, Name: "bus"}
	obj, err := c.Get(ctx, ref)
	if err != nil || obj == nil {
		return err
	}
	replicas, _, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas")
	switch {
	case replicas == 0:
	case mode != "mesh":
		p.Findings = append(p.Findings, deferred(ref, "it is not scaled down yet: the switch does not say mesh"))
	default:
		p.Units = append(p.Units, migration.Unit{ID: "scale-bus", Changes: []migration.Change{{
			Verb: migration.Patch, Ref: ref, UID: obj.GetUID(), Object: j.basis(obj), Guard: true, Patch: []byte(`{"spec":{"replicas":0}}`), Why: "nothing uses it any more",
		}}})
	}
	return nil
}

func (j *Job) planRegistry(ctx context.Context, c *migration.Cluster, p *migration.Plan, space, mode string) error {
	ref := migration.Ref{Resource: registries, Namespace: space, Name: "r"}
	obj, err := c.Get(ctx, ref)
	if err != nil || obj == nil {
		return err
	}
	all, err := listed(ctx, c, entries, space)
	if err != nil {
		return err
	}
	switch {
	case obj.GetDeletionTimestamp() != nil:
		p.Findings = append(p.Findings, deferred(ref, "it is being deleted"))
		return nil
	case mode != "mesh":
		p.Findings = append(p.Findings, deferred(ref, "it is not deleted yet: the switch does not say mesh"))
		return nil
	}
	unit := migration.Unit{ID: "purge"}
	for _, entry := range all {
		if entry.GetDeletionTimestamp() != nil {
			continue // it is on its way: the recheck defers the Registry until it is gone
		}
		unit.Changes = append(unit.Changes, migration.Change{
			Verb: migration.Delete, Ref: migration.Ref{Resource: entries, Namespace: space, Name: entry.GetName()},
			UID: entry.GetUID(), Object: entry, Why: "its Registry goes",
		})
	}
	unit.Changes = append(unit.Changes, migration.Change{Verb: migration.Delete, Ref: ref, UID: obj.GetUID(), Object: obj, Guard: true, Why: "nothing uses it any more"})
	p.Units = append(p.Units, unit)
	return nil
}

func listed(ctx context.Context, c *migration.Cluster, r migration.Resource, space string) ([]*unstructured.Unstructured, error) {
	all, err := c.List(ctx, r, space, migration.ListOptions{})
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all, err
}

// Await implements migration.Job.
func (j *Job) Await(ch *migration.Change) []migration.Condition {
	ref := ch.Ref
	switch {
	case ch.Verb == migration.Create, ch.Verb == migration.Await:
	case ch.Verb == migration.Patch && ref.Kind == "Namespace":
		ref = sideEffects(ref.Name)[0]
	default:
		return nil
	}
	if ref.Kind == "Channel" {
		return []migration.Condition{j.free(ref)}
	}
	ready := migration.Condition{
		Text: ref.String() + " to be ready", On: []migration.Subject{ref.Subject()}, Timeout: j.World.Wait,
		Eval: func(v migration.View) migration.Status {
			switch obj := v.Get(ref.Subject()); {
			case obj == nil:
				return migration.Status{Message: "it does not exist"}
			case !isReady(obj):
				return migration.Status{Message: "it is not ready", Note: "look at its controller"}
			}
			return migration.Status{State: migration.Met}
		},
	}
	if ref.Kind != "Broker" {
		return []migration.Condition{ready}
	}
	var effects []migration.Subject
	for _, effect := range sideEffects(ref.Namespace) {
		effects = append(effects, effect.Subject())
	}
	all := migration.Condition{
		Text: "what belongs to " + ref.String(), On: effects, Timeout: j.World.Wait,
		Eval: func(v migration.View) migration.Status {
			for _, effect := range effects {
				if v.Get(effect) == nil {
					return migration.Status{Message: effect.String() + " does not exist"}
				}
			}
			return migration.Status{State: migration.Met}
		},
	}
	return []migration.Condition{ready, all}
}

// free is that no Source is on a Channel any more.
func (j *Job) free(channel migration.Ref) migration.Condition {
	var on []migration.Subject
	for _, name := range j.World.sourcesOf(channel.Name) {
		on = append(on, migration.Ref{Resource: sources, Namespace: channel.Namespace, Name: name}.Subject())
	}
	return migration.Condition{
		Text: "the Sources on " + channel.String() + " to go", On: on, Timeout: j.World.Wait,
		Eval: func(v migration.View) migration.Status {
			for _, subject := range on {
				if v.Get(subject) != nil {
					return migration.Status{Message: subject.String() + " is on it"}
				}
			}
			return migration.Status{State: migration.Met}
		},
	}
}

// Recheck implements migration.Rechecker.
func (j *Job) Recheck(ctx context.Context, f migration.Fresh, u *migration.Unit, i int) (*migration.Finding, error) {
	w, ref := j.World, u.Changes[i].Ref
	asked := time.Now()
	mode, err := migration.Shared(ctx, f, "switch", func(ctx context.Context, c *migration.Cluster) (string, error) {
		began := time.Now()
		defer func() { j.note(look{asked, span{began, time.Now()}}) }()
		return switchMode(ctx, c, w)
	})
	if err != nil {
		return nil, err
	}
	not := func(problem string) *migration.Finding {
		finding := deferred(ref, problem)
		return &finding
	}
	if mode != "mesh" {
		return not("the switch does not say mesh any more"), nil
	}
	switch ref.Kind {
	case "Source":
		source, err := f.WatchedOne(ctx, ref)
		if err != nil {
			return nil, err
		}
		sink, err := f.WatchedOne(ctx, migration.Ref{Resource: sinks, Namespace: ref.Namespace, Name: ref.Name})
		if err != nil {
			return nil, err
		}
		switch {
		case source == nil:
			return nil, nil
		case sink == nil || sink.GetDeletionTimestamp() != nil || !isReady(sink):
			return not("its Sink is not ready any more"), nil
		case !fits(source, sink):
			return not("it was edited, and its Sink is for another endpoint"), nil
		}
	case "Channel":
		for _, name := range w.sourcesOf(ref.Name) {
			source, err := f.WatchedOne(ctx, migration.Ref{Resource: sources, Namespace: ref.Namespace, Name: name})
			if err != nil {
				return nil, err
			}
			if source != nil {
				return not("Source " + name + " is on it"), nil
			}
		}
	case "Registry":
		left, err := migration.Shared(ctx, f, "entries", func(ctx context.Context, c *migration.Cluster) (int, error) {
			all, err := c.List(ctx, entries, ref.Namespace, migration.ListOptions{})
			return len(all), err
		})
		if err != nil {
			return nil, err
		}
		if left > 0 {
			return not(fmt.Sprintf("%d Entries of it were made meanwhile", left)), nil
		}
	}
	return nil, nil
}

func (j *Job) note(l look) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.looked = append(j.looked, l)
}

// looks are the reads that rechecks shared.
func (j *Job) looks() []look {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.looked)
}

// plans are the times of the plans so far.
func (j *Job) plans() []span {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.planned)
}
