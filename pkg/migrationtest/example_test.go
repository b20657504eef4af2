package migrationtest_test

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/pkg/migrationtest"
)

var configMaps = migration.CoreResource("", "configmaps", "ConfigMap")

// tidy is a job that sets the label tidy on all ConfigMaps of a namespace.
type tidy struct{}

func (tidy) Name() string { return "tidy" }

func (tidy) Doc() (short, long string) { return "Label ConfigMaps.", "" }

func (tidy) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	all, err := c.List(ctx, configMaps, "shop", migration.ListOptions{LabelSelector: "!tidy"})
	if err != nil {
		return nil, err
	}
	plan := &migration.Plan{}
	for _, obj := range all {
		ref := configMaps.RefTo(obj)
		plan.Units = append(plan.Units, migration.Unit{ID: ref.String(), Changes: []migration.Change{
			{Verb: migration.Patch, Ref: ref, Object: obj, Patch: []byte(`{"metadata":{"labels":{"tidy":"yes"}}}`)},
		}})
	}
	return plan, nil
}

func (tidy) Await(*migration.Change) []migration.Condition { return nil }

// In a test, t is its argument, and cfg comes from envtest or another API server that can be
// lost.
func ExampleSurvives() {
	var (
		t   *testing.T
		cfg *rest.Config
	)
	migrationtest.Survives(t, cfg, migrationtest.Subject{
		Job:   func() migration.Job { return tidy{} },
		Kinds: []schema.GroupVersionResource{configMaps.GroupVersionResource},
		Prepare: func(ctx context.Context, client dynamic.Interface) error {
			in := configMaps.In(client, "shop")
			if err := in.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				return err
			}
			_, err := in.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "orders"},
			}}, metav1.CreateOptions{})
			return err
		},
		Done: func(ctx context.Context, client dynamic.Interface) error {
			left, err := configMaps.In(client, "shop").List(ctx, metav1.ListOptions{LabelSelector: "!tidy"})
			if err == nil && len(left.Items) > 0 {
				err = errors.New("there are ConfigMaps without the label")
			}
			return err
		},
	})
}
