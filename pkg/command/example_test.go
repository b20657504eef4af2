package command_test

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/kyma-project/eventmesh-migration/pkg/command"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var configMaps = migration.CoreResource("", "configmaps", "ConfigMap")

// tidy is a job: it sets a label on all ConfigMaps of the namespace shop.
type tidy struct{ label string }

func (*tidy) Name() string { return "tidy" }

func (*tidy) Doc() (short, long string) { return "Label ConfigMaps.", "" }

// Settings implements migration.Configurable: --label becomes a flag.
func (j *tidy) Settings() []migration.Setting {
	return []migration.Setting{{Name: "label", Usage: "the `key` that each ConfigMap is to have.", Value: &j.label}}
}

func (j *tidy) Validate() error { return migration.NameSetting("label", j.label, "label") }

func (j *tidy) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	all, err := c.List(ctx, configMaps, "shop", migration.ListOptions{LabelSelector: "!" + j.label})
	if err != nil {
		return nil, err
	}
	plan := &migration.Plan{}
	for _, obj := range all {
		ref := configMaps.RefTo(obj)
		plan.Units = append(plan.Units, migration.Unit{ID: ref.String(), Changes: []migration.Change{
			{Verb: migration.Patch, Ref: ref, Object: obj, Patch: fmt.Appendf(nil, `{"metadata":{"labels":{%q:"yes"}}}`, j.label), Why: "it has no label"},
		}})
	}
	return plan, nil
}

func (*tidy) Await(*migration.Change) []migration.Condition { return nil }

// In a program, only the version is set, and the exit code is given to os.Exit.
func ExampleRun() {
	env, end := shop()
	defer end()
	for _, line := range [][]string{
		{"plan", "--output=name"},
		{"run", "--output=name", "--label=sorted"},
		{"paln"},
	} {
		code := command.Run(&tidy{label: "tidy"}, command.Options{Version: "v1.2.3", Args: line, Env: env, Stdout: os.Stdout, Stderr: io.Discard})
		fmt.Println("exit code", code)
	}
	// Output:
	// configmap/orders --namespace=shop
	// exit code 0
	// configmap/orders --namespace=shop
	// exit code 0
	// exit code 2
}
