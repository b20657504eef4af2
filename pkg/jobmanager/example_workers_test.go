package jobmanager_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// An installer deploys its components side by side, with a worker for each.
func ExampleManager_Begin() {
	ctx := context.Background()
	components := []string{"monitoring", "logging", "tracing"}
	m, err := jobmanager.New(
		jobmanager.Options{Engine: jobmanager.ForCluster(cluster()), Migration: engine.Options{Names: migration.Names{Program: "installer"}, Identity: "installer-1"}},
		components,
		jobmanager.Registration{Job: prepareStorage{}, Hooks: []jobmanager.Hook{jobmanager.Before("logging"), jobmanager.Before("tracing")}},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := m.Begin(components)
	if err != nil {
		fmt.Println(err)
		return
	}
	deploy := func(component string) error {
		if component == "monitoring" {
			return fmt.Errorf("no such image")
		}
		return nil
	}
	worker := func(component string) error {
		if err := d.Pre(ctx, component); err != nil {
			return err
		}
		if err := deploy(component); err != nil {
			return d.Fail(component, err)
		}
		return d.Post(ctx, component)
	}
	var workers sync.WaitGroup
	for _, component := range components {
		workers.Go(func() {
			if err := worker(component); err != nil {
				fmt.Println("worker:", err)
			}
		})
	}
	workers.Wait()
	// A component has failed, so that the jobs after everything do not run: this returns
	// the same error as End.
	_ = d.Post(ctx, jobmanager.Global)
	report, err := d.End()
	for _, c := range report.Components {
		fmt.Println(c.Component, c.Result)
	}
	fmt.Println("exit code", report.ExitCode)
	fmt.Println(err)
	// Output:
	// worker: cannot deploy component monitoring: no such image
	// monitoring failed
	// logging deployed
	// tracing deployed
	// exit code 1
	// cannot deploy component monitoring: no such image
}
