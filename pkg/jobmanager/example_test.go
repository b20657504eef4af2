package jobmanager_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/model"
)

// prepareStorage is a job: it creates ConfigMap storage/settings where that is missing.
type prepareStorage struct{}

func (prepareStorage) Name() string { return "prepare-storage" }

func (prepareStorage) Doc() (short, long string) { return "Create the settings of the storage", "" }

func (prepareStorage) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	settings := migration.Ref{Resource: migration.CoreResource("", "configmaps", "ConfigMap"), Namespace: "storage", Name: "settings"}
	found, err := c.Get(ctx, settings)
	if err != nil || found != nil {
		return &migration.Plan{}, err
	}
	return &migration.Plan{Units: []migration.Unit{{ID: settings.String(), Changes: []migration.Change{{
		Verb: migration.Create, Ref: settings,
		Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "storage", "name": "settings"},
		}},
	}}}}}, nil
}

// Await returns what must hold after the change; here the write is enough.
func (prepareStorage) Await(*migration.Change) []migration.Condition { return nil }

// cluster is a Kubernetes API server in memory. An installer takes the rest.Config of
// its cluster instead.
func cluster() *rest.Config {
	cfg := model.New(1).Client("example").Config()
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"storage", "installer"} {
		namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
		_, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(context.Background(), namespace, metav1.CreateOptions{})
		if err != nil {
			panic(err)
		}
	}
	return cfg
}

// An installer deploys two components, one after the other. A job belongs before the
// second one. When everything is deployed again, the job is not needed any more.
func Example() {
	components := []string{"monitoring", "logging"}
	m, err := jobmanager.New(
		jobmanager.Options{Engine: jobmanager.ForCluster(cluster()), Migration: engine.Options{Names: migration.Names{Program: "installer"}, Identity: "installer-1"}},
		components,
		jobmanager.Registration{
			Job:      prepareStorage{},
			Hooks:    []jobmanager.Hook{jobmanager.Before("logging")},
			RemoveBy: "1.20.0",
		},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	deploy := func(_ context.Context, component string) error {
		fmt.Println("deploying", component)
		return nil
	}
	for range 2 {
		report, err := m.Deploy(context.Background(), components, deploy)
		if err != nil {
			fmt.Println(err)
		}
		for _, j := range report.Jobs {
			fmt.Printf("%s (%s/%s): %s, %s\n", j.Job, j.Component, j.Phase, j.Result, j.Reason)
		}
		fmt.Println("exit code", report.ExitCode)
	}
	fmt.Println(m.Lint("1.20.0"))
	// Output:
	// deploying monitoring
	// deploying logging
	// prepare-storage (logging/pre): succeeded, 1 change left to make
	// exit code 0
	// deploying monitoring
	// deploying logging
	// prepare-storage (logging/pre): not-needed, nothing is left to do
	// exit code 0
	// job prepare-storage must be gone from release 1.20.0 on, and this is 1.20.0: delete it, its registration and its documentation
}
