// Package migrationtest proves pkg/migrationtest on a real API server: a good job survives,
// and each bad one is caught.
package migrationtest

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/pkg/migrationtest"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// cluster is the one control plane of this package's tests.
var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) { kubernetes.Main(m, kubernetes.Shared(&cluster)) }

const (
	namespace = "migrationtest"
	oldLabel  = "example.org/old"
	newLabel  = "example.org/new"
)

var configMaps = migration.CoreResource("", "configmaps", "ConfigMap")

// renaming renames ConfigMaps with the old label: it creates one with the new label, deletes
// the former one, and notes in the ConfigMap "index" that it was there.
type renaming struct {
	fault string
	// client is for faults only: a job must not have one.
	client dynamic.Interface
}

// Faults of the job.
const (
	none             = "none"
	writesInPlan     = "writes-in-plan"
	writesInAwait    = "writes-in-await"
	neverDone        = "never-done"
	forgetsTheObject = "forgets-the-object"
	refusesHalfDone  = "refuses-half-done"
)

func (j *renaming) Name() string { return "renaming" }

func (j *renaming) Doc() (short, long string) { return "Rename ConfigMaps.", "" }

func (j *renaming) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	all, err := c.List(ctx, configMaps, namespace, migration.ListOptions{})
	if err != nil {
		return nil, err
	}
	if j.fault == writesInPlan {
		if err := j.note(ctx, "plan"); err != nil {
			return nil, err
		}
	}
	plan := &migration.Plan{}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	for _, former := range all {
		switch {
		case former.GetName() == "index" && (former.GetLabels()[newLabel] == "" || j.fault == neverDone):
			plan.Units = append(plan.Units, migration.Unit{ID: "index", Changes: []migration.Change{{
				Verb: migration.Patch, Ref: refTo("index"), Object: former, Patch: []byte(`{"metadata":{"labels":{"` + newLabel + `":"` + j.index() + `"}}}`),
			}}})
		case j.fault == refusesHalfDone && exists(all, "new-"+former.GetName()):
			return nil, fmt.Errorf("cannot rename %s: both names exist", refTo(former.GetName()))
		case former.GetLabels()[oldLabel] != "":
			plan.Units = append(plan.Units, j.rename(former))
		}
	}
	return plan, nil
}

func exists(all []*unstructured.Unstructured, name string) bool {
	return slices.ContainsFunc(all, func(obj *unstructured.Unstructured) bool { return obj.GetName() == name })
}

// index is the value that the label of the index gets.
func (j *renaming) index() string {
	if j.fault == neverDone {
		return fmt.Sprint(time.Now().UnixNano())
	}
	return "yes"
}

func (j *renaming) rename(former *unstructured.Unstructured) migration.Unit {
	changed := configMap("new-"+former.GetName(), newLabel)
	deletion := migration.Change{Verb: migration.Delete, Ref: refTo(former.GetName()), Object: former}
	if j.fault == forgetsTheObject {
		deletion.Object = nil
	}
	return migration.Unit{ID: former.GetName(), Changes: []migration.Change{
		{Verb: migration.Create, Ref: refTo(changed.GetName()), Object: changed}, deletion,
	}}
}

func (j *renaming) Await(ch *migration.Change) []migration.Condition {
	if j.fault != writesInAwait || ch.Verb != migration.Create {
		return nil
	}
	return []migration.Condition{{
		Text: "the note", On: []migration.Subject{ch.Ref.Subject()},
		Eval: func(migration.View) migration.Status {
			if err := j.note(context.Background(), "await"); err != nil {
				return migration.Status{State: migration.Failed, Message: err.Error()}
			}
			return migration.Status{State: migration.Met}
		},
	}}
}

// note writes past the engine.
func (j *renaming) note(ctx context.Context, where string) error {
	patch := fmt.Appendf(nil, `{"data":{%q:"%d"}}`, where, time.Now().UnixNano())
	_, err := configMaps.In(j.client, namespace).Patch(ctx, "index", types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func refTo(name string) migration.Ref {
	return migration.Ref{Resource: configMaps, Namespace: namespace, Name: name}
}

func configMap(name, label string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	obj.SetName(name)
	obj.SetNamespace(namespace)
	if label != "" {
		obj.SetLabels(map[string]string{label: "yes"})
	}
	return obj
}

// subject is the job with the fault, and two ConfigMaps for it.
func subject(t *testing.T, fault string) migrationtest.Subject {
	t.Helper()
	own, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	return migrationtest.Subject{
		Job:   func() migration.Job { return &renaming{fault: fault, client: own} },
		Kinds: []schema.GroupVersionResource{configMaps.GroupVersionResource},
		Prepare: func(ctx context.Context, client dynamic.Interface) error {
			ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}
			namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
			if _, err := namespaces.Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			own := configMaps.In(client, namespace)
			if err := own.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"}); err != nil {
				return err
			}
			for name, label := range map[string]string{"a": oldLabel, "b": oldLabel, "index": ""} {
				if _, err := own.Create(ctx, configMap(name, label), metav1.CreateOptions{}); err != nil {
					return err
				}
			}
			return nil
		},
		Done: func(ctx context.Context, client dynamic.Interface) error {
			list, err := configMaps.In(client, namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			var names []string
			for i := range list.Items {
				if name := list.Items[i].GetName(); name != "kube-root-ca.crt" {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			if diff := cmp.Diff([]string{"index", "new-a", "new-b"}, names); diff != "" {
				return fmt.Errorf("the ConfigMaps are not those wanted (-want +got):\n%s", diff)
			}
			return nil
		},
	}
}

func TestAGoodJobSurvives(t *testing.T) {
	migrationtest.Survives(t, cluster.Config(), subject(t, none))
}

// faultEnv tells a child process which bad job it is to test.
const faultEnv = "MIGRATIONTEST_FAULT"

// TestBadJob is run by TestBadJobsAreCaught, in a process of its own: it must fail.
func TestBadJob(t *testing.T) {
	fault := os.Getenv(faultEnv)
	if fault == "" {
		t.Skip("TestBadJobsAreCaught runs this")
	}
	migrationtest.Survives(t, cluster.Config(), subject(t, fault))
}

func TestBadJobsAreCaught(t *testing.T) {
	for _, tc := range []struct {
		reason, fault, subtests string
		// want are the subtests that fail.
		want []string
		// says is what the failure tells the developer.
		says string
	}{
		{
			reason: "the same job without a fault passes all that the bad ones are given", fault: none, subtests: "Plan|NoWriteWhenDone|Undo|Edit",
		},
		{
			reason: "a plan that writes with a client of its own", fault: writesInPlan, subtests: "Plan",
			want: []string{"Plan"}, says: "objects were written past the engine",
		},
		{
			reason: "a condition that writes: no rollback and no undo knows of it", fault: writesInAwait, subtests: "Undo|Plan",
			want: []string{"Undo"}, says: "the cluster is not as before the run",
		},
		{
			reason: "a plan that is not empty when all is done", fault: neverDone, subtests: "NoWriteWhenDone",
			want: []string{"NoWriteWhenDone"}, says: "nothing is left to do: result succeeded",
		},
		{
			reason: "a deletion without the object on which it was decided", fault: forgetsTheObject, subtests: "Edit|Undo",
			want: []string{"Edit"}, says: "was deleted although it was edited after the plan",
		},
		{
			reason: "a plan that does not understand what a killed run has left", fault: refusesHalfDone, subtests: "KillForward|Undo",
			want: []string{"KillForward"}, says: "both names exist",
		},
	} {
		t.Run(tc.fault, func(t *testing.T) {
			// Unlike a job, a test may need all of the environment.
			child := process.Run(t, process.Program{
				Binary: os.Args[0], Args: []string{"-test.v", "-test.run=^TestBadJob$/^(" + tc.subtests + ")$"},
				Env:   append(os.Environ(), faultEnv+"="+tc.fault, kubernetes.KubeconfigEnv+"="+cluster.Kubeconfig),
				Limit: 10 * time.Minute,
			})
			if code := child.Wait(); (code != 0) != (len(tc.want) > 0) {
				t.Errorf("%s: the test ended with exit code %d", tc.reason, code)
			}
			out := child.Stdout() + child.Stderr()
			var failed []string
			for _, match := range regexp.MustCompile(`(?m)^ +--- FAIL: TestBadJob/(\w+) `).FindAllStringSubmatch(out, -1) {
				failed = append(failed, match[1])
			}
			if diff := cmp.Diff(tc.want, failed); diff != "" {
				t.Errorf("%s: failed subtests (-want +got):\n%s", tc.reason, diff)
			}
			for _, part := range []string{tc.says, "repeat it: go test -run '^TestBadJob$/^" + strings.Join(tc.want, "")} {
				if len(tc.want) > 0 && !strings.Contains(out, part) {
					t.Errorf("%s: it does not say %q", tc.reason, part)
				}
			}
		})
	}
}
