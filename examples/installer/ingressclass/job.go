// Package ingressclass is a migration job: it moves Ingresses from the deprecated annotation
// kubernetes.io/ingress.class to the field spec.ingressClassName.
//
// It is the simplest kind of job, one patch for each object. Read it in this order:
//
//   - [Job.Plan] reads the cluster and decides. An Ingress that has the field already is
//     not in the plan, so that a second run has nothing to do.
//   - Each patch carries the object that the decision rests on. The engine makes it only
//     while the fields are still so.
//   - A plan also says what it leaves alone, as a finding.
//
// The API server refuses an Ingress that is created with both. The patch removes the one
// and sets the other in one write, so that no controller sees an Ingress without a class.
package ingressclass

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Annotation is the deprecated way to choose the class of an Ingress.
const Annotation = "kubernetes.io/ingress.class"

// Ingresses is the kind that the job changes.
var Ingresses = migration.CoreResource("networking.k8s.io", "ingresses", "Ingress")

// Job moves all Ingresses of the cluster. Its zero value is ready to use.
type Job struct{}

// Name implements migration.Job.
func (Job) Name() string { return "ingress-class" }

// Doc implements migration.Job.
func (Job) Doc() (short, long string) {
	return "Move Ingresses from the class annotation to ingressClassName.", "It leaves Ingresses that have both, with different values."
}

// Plan implements migration.Job.
func (Job) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	all, err := c.List(ctx, Ingresses, "", migration.ListOptions{})
	if err != nil {
		return nil, err
	}
	return Decide(all), nil
}

// Decide is the plan for these Ingresses. It reads nothing, so that a table can test it.
func Decide(all []*unstructured.Unstructured) *migration.Plan {
	plan := &migration.Plan{Parallelism: 10}
	for _, ingress := range all {
		ref := migration.Ref{Resource: Ingresses, Namespace: ingress.GetNamespace(), Name: ingress.GetName()}
		annotated := ingress.GetAnnotations()[Annotation]
		class, _, _ := unstructured.NestedString(ingress.Object, "spec", "ingressClassName")
		switch {
		case annotated == "":
			continue // nothing to do
		case class != "" && class != annotated:
			plan.Findings = append(plan.Findings, migration.Finding{
				Severity: migration.Warning, Object: ref.String(), Problem: "the annotation and ingressClassName name different classes",
				Note: "If ingressClassName is right, remove the annotation " + Annotation + ".",
			})
			continue
		}
		plan.Units = append(plan.Units, migration.Unit{ID: ref.String(), Changes: []migration.Change{{
			Verb: migration.Patch, Ref: ref, Object: ingress, Patch: patch(annotated), Why: "its class " + annotated + " is an annotation",
		}}})
	}
	return plan
}

// patch removes the annotation and sets the field.
func patch(class string) json.RawMessage {
	raw, _ := json.Marshal(map[string]any{ // strings only
		"metadata": map[string]any{"annotations": map[string]any{Annotation: nil}},
		"spec":     map[string]any{"ingressClassName": class},
	})
	return raw
}

// Await implements migration.Job: with the write, the change is done.
func (Job) Await(*migration.Change) []migration.Condition { return nil }
