package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// kinds are those whose images are moved. Each has its containers in spec.template.spec.
var kinds = []migration.Resource{
	migration.CoreResource("apps", "deployments", "Deployment"),
	migration.CoreResource("apps", "statefulsets", "StatefulSet"),
	migration.CoreResource("apps", "daemonsets", "DaemonSet"),
}

// Job moves the images of all workloads whose names begin with From. They begin with To then.
type Job struct{ From, To string }

// Name implements migration.Job.
func (*Job) Name() string { return "registry-move" }

// Doc implements migration.Job.
func (*Job) Doc() (short, long string) { return "Move images to another registry.", "" }

// Plan implements migration.Job.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	// Otherwise a second run would move again what the first one has moved.
	if j.From == "" || strings.HasPrefix(j.To, j.From) {
		return nil, fmt.Errorf("cannot move images from %q to %q: give --from and --to; the new name must not begin with the former one", j.From, j.To)
	}
	plan := &migration.Plan{Parallelism: 5}
	for _, kind := range kinds {
		all, err := c.List(ctx, kind, "", migration.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, obj := range all {
			if lists := j.move(obj); len(lists) > 0 && !c.LeavesOut(obj.GetNamespace()) {
				patch, _ := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": lists}}}) // it was JSON
				ref := kind.RefTo(obj)
				plan.Units = append(plan.Units, migration.Unit{ID: ref.String(), Changes: []migration.Change{
					{Verb: migration.Patch, Ref: ref, UID: obj.GetUID(), Object: obj, Patch: patch, Why: "it uses images of " + j.From},
				}})
			}
		}
	}
	return plan, nil
}

// move returns the lists of containers with the images that they are to have. A list in which
// nothing is left to move is not returned.
func (j *Job) move(obj *unstructured.Unstructured) map[string]any {
	lists := map[string]any{}
	for _, field := range []string{"initContainers", "containers"} {
		containers, _, _ := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", field) // a copy
		for _, c := range containers {
			container, _ := c.(map[string]any)
			image, _ := container["image"].(string)
			if path, ok := strings.CutPrefix(image, j.From); ok {
				container["image"], lists[field] = j.To+path, containers
			}
		}
	}
	return lists
}

// states are those of a rollout. Any other status may still become one of these.
var states = map[status.Status]migration.State{status.CurrentStatus: migration.Met, status.FailedStatus: migration.Failed}

// Await implements migration.Job: a change is done when its pods are replaced.
func (j *Job) Await(ch *migration.Change) []migration.Condition {
	rolledOut := func(v migration.View) migration.Status {
		// A watch lags behind a write: it may show the object as the plan has read it.
		if obj := v.Get(ch.Ref.Subject()); obj != nil && obj.GetGeneration() > ch.Object.GetGeneration() {
			if result, err := status.Compute(obj); err == nil {
				return migration.Status{State: states[result.Status], Message: result.Message}
			}
		}
		return migration.Status{Message: "the new images are not visible yet"}
	}
	return []migration.Condition{{Text: "its rollout", On: []migration.Subject{ch.Ref.Subject()}, Eval: rolledOut}}
}

// IgnoredKeys implements migration.EditIgnorer: controllers count rollouts in these annotations.
func (*Job) IgnoredKeys() []string {
	return []string{"deployment.kubernetes.io/revision", "deprecated.daemonset.template.generation"}
}
