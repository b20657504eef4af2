package migration_test

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// ingressClass is a job: it moves the class of each Ingress from its annotation to the field.
type ingressClass struct{}

var ingresses = migration.CoreResource("networking.k8s.io", "ingresses", "Ingress")

func (ingressClass) Name() string { return "ingress-class" }

func (ingressClass) Doc() (short, long string) {
	return "Move Ingresses to ingressClassName.", "It leaves Ingresses without a class."
}

// Plan depends on the cluster alone: what is done already is not in it.
func (ingressClass) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	all, err := c.List(ctx, ingresses, "", migration.ListOptions{})
	if err != nil {
		return nil, err
	}
	return decide(all), nil
}

// decide reads nothing, so that a table can test it.
func decide(all []*unstructured.Unstructured) *migration.Plan {
	plan := &migration.Plan{Parallelism: 10}
	for _, ingress := range all {
		class := ingress.GetAnnotations()["kubernetes.io/ingress.class"]
		if class == "" {
			continue // nothing to do
		}
		ref := ingresses.RefTo(ingress)
		patch, _ := json.Marshal(map[string]any{ // strings only
			"metadata": map[string]any{"annotations": map[string]any{"kubernetes.io/ingress.class": nil}},
			"spec":     map[string]any{"ingressClassName": class},
		})
		plan.Units = append(plan.Units, migration.Unit{ID: ref.String(), Changes: []migration.Change{{
			Verb: migration.Patch, Ref: ref, UID: ingress.GetUID(), Object: ingress, Patch: patch, Why: "its class is an annotation",
		}}})
	}
	return plan
}

// Await returns nothing: with the write, the change is done.
func (ingressClass) Await(*migration.Change) []migration.Condition { return nil }

// A job decides, and the engine acts: see the examples of package engine.
func ExampleJob() {
	var job migration.Job = ingressClass{}
	short, _ := job.Doc()
	fmt.Println(job.Name()+":", short)
	plan := decide([]*unstructured.Unstructured{
		{Object: map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "web", "annotations": map[string]any{"kubernetes.io/ingress.class": "nginx"}}}},
		{Object: map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "done"}}},
	})
	for _, unit := range plan.Units {
		for _, change := range unit.Changes {
			fmt.Printf("%s %s: %s\n", change.Verb, change.Ref, change.Why)
		}
	}
	// Output:
	// ingress-class: Move Ingresses to ingressClassName.
	// patch Ingress shop/web: its class is an annotation
}

// view is what a condition sees in a test: one object, or none.
type view struct{ obj *unstructured.Unstructured }

func (v view) Get(migration.Subject) *unstructured.Unstructured { return v.obj }

func (v view) List(schema.GroupKind, string) []*unstructured.Unstructured { return nil }

// A condition says what must hold after a change, and why it does not hold yet. It asks whether the
// object is newer than the one that was patched: a watch lags behind a write.
func ExampleCondition() {
	deployments := migration.CoreResource("apps", "deployments", "Deployment")
	ref := migration.Ref{Resource: deployments, Namespace: "shop", Name: "orders"}
	generation := int64(4)
	condition := migration.Condition{
		Text: "its rollout", On: []migration.Subject{ref.Subject()},
		Eval: func(v migration.View) migration.Status {
			obj := v.Get(ref.Subject())
			if obj == nil || obj.GetGeneration() <= generation {
				return migration.Status{Message: "the patch is not visible yet"}
			}
			if seen, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration"); seen < obj.GetGeneration() {
				return migration.Status{Message: "its controller has not seen the patch", Command: migration.Kubectl("shop", "describe", "deployment", "orders")}
			}
			return migration.Status{State: migration.Met}
		},
	}
	for _, observed := range []int64{4, 5} {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"generation": int64(5)}, "status": map[string]any{"observedGeneration": observed},
		}}
		status := condition.Eval(view{obj})
		fmt.Println(status.State == migration.Met, status.Message, status.Command)
	}
	// Output:
	// false its controller has not seen the patch kubectl -n shop describe deployment orders
	// true
}

// A finding tells the user about a problem, with the next command. One of severity Error refuses
// the whole plan before its first write.
func ExampleFinding() {
	plan := migration.Plan{Findings: []migration.Finding{
		{ID: "two-classes", Severity: migration.Warning, Object: "Ingress shop/web", Problem: "it names two classes", Note: "Remove the annotation."},
		{ID: "no-class", Severity: migration.Error, Object: "IngressClass nginx", Problem: "it does not exist", Command: migration.Kubectl("", "get", "ingressclasses")},
	}}
	plan.SortFindings()
	for _, finding := range plan.Findings {
		fmt.Printf("%s: %s\n", finding.Severity, finding)
	}
	// Output:
	// error: IngressClass nginx: it does not exist (kubectl get ingressclasses)
	// warning: Ingress shop/web: it names two classes (Remove the annotation.)
}

// A unit is made in order. Here an object is replaced by one with another selector, and a guard has
// the job asked once more right before the deletion: see Rechecker.
func ExampleUnit() {
	ref := migration.Ref{Resource: migration.CoreResource("apps", "deployments", "Deployment"), Namespace: "shop", Name: "orders"}
	former, next := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	unit := migration.Unit{ID: ref.String(), Changes: []migration.Change{
		{Verb: migration.Delete, Ref: ref, Object: former, Guard: true, Why: "its selector cannot be changed"},
		{Verb: migration.Create, Ref: ref, Object: next},
	}}
	for i := range unit.Changes {
		fmt.Println(unit.Changes[i].Verb, unit.Changes[i].Reversible())
	}
	// Output:
	// delete new-uid
	// create yes
}

// Labels, annotations and objects in the cluster are called after the program.
func ExampleNames() {
	names := migration.Names{Program: "registry-move", Domain: "registry-move.example.org"}
	fmt.Println(names.Validate())
	fmt.Println(names.Key("job"))
	fmt.Println(names.Mark())
	// Output:
	// <nil>
	// registry-move.example.org/job
	// registry-move.example.org/change
}

// A program ends with the exit code of its report.
func ExampleReport_ExitCode() {
	for _, result := range []migration.Result{migration.Succeeded, migration.RolledBack, migration.Refused} {
		code := (&migration.Report{Result: result}).ExitCode()
		fmt.Println(code, migration.ExitCodeOf(code).Meaning)
	}
	// Output:
	// 0 done, or nothing to do, or the rest is deferred
	// 1 failed, and rolled back (or nothing had been changed); or work is deferred with --defer=fail
	// 4 refused before the first change: the report names why
}

// Kubectl quotes what a shell would change, so that a person can paste the command.
func ExampleKubectl() {
	fmt.Println(migration.Kubectl("shop", "get", "deployments", "-l", "app in (orders, cart)"))
	// Output: kubectl -n shop get deployments -l 'app in (orders, cart)'
}

// Finalizers and owner references are lists that others add to: they are edited by entry.
func ExampleRemoveFinalizer() {
	change := migration.Change{Verb: migration.Patch, Lists: migration.RemoveFinalizer("example.org/former-controller")}
	fmt.Println(change.Lists[0].Path, change.Lists[0].Remove)
	// Output: [metadata finalizers] [example.org/former-controller]
}
