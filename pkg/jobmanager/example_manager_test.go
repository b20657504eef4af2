package jobmanager_test

import (
	"context"
	"fmt"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// storageManager is a manager with one component and one job.
func storageManager() *jobmanager.Manager {
	m, err := jobmanager.New(
		jobmanager.Options{Engine: jobmanager.ForCluster(cluster()), Migration: engine.Options{Names: migration.Names{Program: "installer"}}},
		[]string{"logging"},
		jobmanager.Registration{Job: prepareStorage{}, Hooks: []jobmanager.Hook{jobmanager.Before("logging")}, RemoveBy: "1.20.0"},
	)
	if err != nil {
		panic(err)
	}
	return m
}

// All mistakes in the registrations are reported together, when the program starts.
func ExampleNew() {
	_, err := jobmanager.New(
		jobmanager.Options{Engine: jobmanager.ForCluster(cluster()), Migration: engine.Options{Names: migration.Names{Program: "installer"}}},
		[]string{"logging"},
		jobmanager.Registration{Job: prepareStorage{}, Hooks: []jobmanager.Hook{jobmanager.Before("loging")}},
	)
	fmt.Println(err)
	// Output:
	// cannot register the jobs: job prepare-storage: unknown component "loging" (valid: global, logging)
}

// Without a deployment, the jobs do what the cluster is ready for.
func ExampleManager_Run() {
	m, ctx := storageManager(), context.Background()
	before, after := jobmanager.Selection{Phases: []jobmanager.Phase{jobmanager.Pre}}, jobmanager.Selection{Phases: []jobmanager.Phase{jobmanager.Post}}
	for _, selection := range []jobmanager.Selection{before, after} {
		report, err := m.Run(ctx, selection)
		fmt.Println(selection.Phases, len(report.Jobs), report.ExitCode, err)
	}
	// Output:
	// [pre] 1 0 <nil>
	// [post] 0 0 <nil>
}

// Plan and Needs write nothing.
func ExampleManager_Needs() {
	m, ctx := storageManager(), context.Background()
	plan, err := m.Plan(ctx, jobmanager.Selection{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, job := range plan.Jobs {
		fmt.Println(job.Job, job.Result)
	}
	needs, err := m.Needs(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, need := range needs {
		fmt.Println(need.Job.Name(), need.Verdict+":", need.Reason)
	}
	// Output:
	// prepare-storage planned
	// prepare-storage needed: 1 change left to make
}

// UndoJobs undoes what Run did, in the reverse order. Undo is for one job, by its name.
func ExampleManager_UndoJobs() {
	m, ctx := storageManager(), context.Background()
	if _, err := m.Run(ctx, jobmanager.Selection{}); err != nil {
		fmt.Println(err)
		return
	}
	order, err := m.UndoOrder(jobmanager.Selection{})
	fmt.Println(order, err)
	report, err := m.UndoJobs(ctx, jobmanager.Selection{})
	for _, job := range report.Jobs {
		fmt.Println(job.Job, job.Result, err)
	}
	again, err := m.Undo(ctx, "prepare-storage")
	fmt.Println(again.Result, err)
	// Output:
	// [prepare-storage] <nil>
	// prepare-storage succeeded <nil>
	// nothing-to-do <nil>
}

// A job that was for one release is found in the first one that must not have it.
func ExampleManager_Lint() {
	m := storageManager()
	fmt.Println(m.Lint("1.19.3"))
	fmt.Println(m.Lint("1.20.0") != nil)
	// Output:
	// <nil>
	// true
}
