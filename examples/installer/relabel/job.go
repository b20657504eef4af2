// Package relabel is a migration job: it gives the Deployments of a namespace the recommended
// label app.kubernetes.io/name in place of app, also in their selector.
//
// The selector of a Deployment cannot be changed, so that it must be deleted and created
// again. This shows what a job needs that destroys something:
//
//   - The deletion carries the object as the plan has read it. The engine stores it before
//     the deletion, restores it if the run fails, and refuses to delete an object that
//     somebody has edited since.
//   - The deletion is guarded: [Job.Recheck] is asked right before it. Between the plan and
//     the deletion the run may have waited for other Deployments.
//   - [Job.Await] says when the new Deployment is available. Only then does the run go on,
//     and it is rolled back if that does not come.
//   - [Job.IgnoredKeys] names what the controller of Deployments writes, so that nobody takes
//     it for an edit.
//
// The pods of a Deployment are replaced, and its Service has none meanwhile. One Deployment
// is recreated at a time.
package relabel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Labels before and after the migration.
const (
	Former      = "app"
	Recommended = "app.kubernetes.io/name"
)

// revision is written by the controller of Deployments.
const revision = "deployment.kubernetes.io/revision"

// available is how long a new Deployment may take.
const available = 2 * time.Minute

// Deployments is the kind that the job changes.
var Deployments = migration.CoreResource("apps", "deployments", "Deployment")

// Job relabels the Deployments of one namespace.
type Job struct{ Namespace string }

// Name implements migration.Job.
func (Job) Name() string { return "relabel" }

// Doc implements migration.Job.
func (Job) Doc() (short, long string) {
	return "Give Deployments the label " + Recommended + " in place of " + Former + ".", "It recreates them, one at a time."
}

// Plan implements migration.Job.
func (j Job) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	all, err := c.List(ctx, Deployments, j.Namespace, migration.ListOptions{})
	if err != nil {
		return nil, err
	}
	return Decide(all)
}

// Decide is the plan for these Deployments. It reads nothing, so that a table can test it.
func Decide(all []*unstructured.Unstructured) (*migration.Plan, error) {
	plan := &migration.Plan{Serial: true}
	for _, deployment := range all {
		if !selects(deployment) {
			continue // nothing to do
		}
		ref := migration.Ref{Resource: Deployments, Namespace: deployment.GetNamespace(), Name: deployment.GetName()}
		relabelled, err := relabel(deployment)
		if err != nil {
			return nil, fmt.Errorf("cannot relabel %s: %w", ref, err)
		}
		plan.Units = append(plan.Units, migration.Unit{ID: ref.String(), Changes: []migration.Change{
			{Verb: migration.Delete, Ref: ref, UID: deployment.GetUID(), Object: deployment, Guard: true, Why: "its selector cannot be changed"},
			{Verb: migration.Create, Ref: ref, Object: relabelled, Why: "with the label " + Recommended},
		}})
	}
	return plan, nil
}

// selects says whether the selector of a Deployment has the former label.
func selects(deployment *unstructured.Unstructured) bool {
	_, found, _ := unstructured.NestedString(deployment.Object, "spec", "selector", "matchLabels", Former)
	return found
}

// relabel returns the Deployment as it is to be created.
func relabel(deployment *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	next := deployment.DeepCopy()
	delete(next.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(next.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(next.Object, "metadata", "annotations", revision)
	for _, path := range [][]string{
		{"metadata", "labels"}, {"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"},
	} {
		labels, _, err := unstructured.NestedStringMap(next.Object, path...)
		if err != nil {
			return nil, err
		}
		value, found := labels[Former]
		if !found {
			continue
		}
		if other, both := labels[Recommended]; both && other != value {
			return nil, errors.New("both labels are there, with different values")
		}
		delete(labels, Former)
		labels[Recommended] = value
		if err := unstructured.SetNestedStringMap(next.Object, labels, path...); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// Recheck implements migration.Rechecker.
func (Job) Recheck(ctx context.Context, f migration.Fresh, u *migration.Unit, i int) (*migration.Finding, error) {
	ch := &u.Changes[i]
	live, err := f.WatchedOne(ctx, ch.Ref)
	if err != nil || live == nil || live.GetUID() != ch.UID || live.GetGeneration() == ch.Object.GetGeneration() {
		return nil, err
	}
	return &migration.Finding{
		Severity: migration.Deferred, Object: ch.Ref.String(), Problem: "it was edited after the plan was made", Note: "Run the job again.",
	}, nil
}

// Await implements migration.Job.
func (Job) Await(ch *migration.Change) []migration.Condition {
	if ch.Verb != migration.Create {
		return nil
	}
	return []migration.Condition{{
		Text: "its pods to be available", On: []migration.Subject{ch.Ref.Subject()}, Timeout: available,
		Eval: func(v migration.View) migration.Status { return rolledOut(v.Get(ch.Ref.Subject())) },
	}}
}

// rolledOut says whether all pods of a Deployment are available.
func rolledOut(deployment *unstructured.Unstructured) migration.Status {
	if deployment == nil {
		return migration.Status{Message: "it does not exist"}
	}
	number := func(fields ...string) int64 {
		n, _, _ := unstructured.NestedInt64(deployment.Object, fields...)
		return n
	}
	want, have := number("spec", "replicas"), number("status", "availableReplicas")
	if number("status", "observedGeneration") < deployment.GetGeneration() || have < want {
		return migration.Status{
			Message: fmt.Sprintf("%d of %d pods are available", have, want),
			Command: migration.Kubectl(deployment.GetNamespace(), "describe", "deployment", deployment.GetName()),
		}
	}
	return migration.Status{State: migration.Met}
}

// IgnoredKeys implements migration.EditIgnorer.
func (Job) IgnoredKeys() []string { return []string{revision} }
