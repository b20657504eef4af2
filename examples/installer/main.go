// Installer installs three components, two at a time. Before a component is installed, its
// migration jobs run.
//
// It is an example of how to use package jobmanager: copy it. What an installer needs is in
// [install] and [worker]:
//
//   - A [jobmanager.Registration] for each job: before or after which component it runs.
//   - One [jobmanager.Deployment] for the whole installation. Its workers call Pre and Post of
//     a component from their own goroutines. The jobs share one Lease, so that no other
//     installer writes at the same time.
//   - The error of Pre decides whether the component is installed. A failed job is rolled back
//     by then.
//
// A job decides by the state of the cluster whether there is anything to do. So an installer
// needs no record of which jobs have run: it calls the hooks each time.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.org/installer/ingressclass"
	"example.org/installer/relabel"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// workers is how many components are installed at a time.
const workers = 2

// components are installed from manifests/<name>.yaml.
var components = []string{"gateway", "shop", "billing"}

// jobs are the migrations, each with the component before which it runs.
var jobs = []jobmanager.Registration{
	{Job: ingressclass.Job{}, Hooks: []jobmanager.Hook{jobmanager.Before("gateway")}},
	{Job: relabel.Job{Namespace: "shop"}, Hooks: []jobmanager.Hook{jobmanager.Before("shop")}, RemoveBy: "2.0.0"},
}

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of the kubeconfig; in a Pod, none is needed")
	flag.Parse()
	// When it ends, the engine stops in order, and leaves its journal open for the next run.
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err == nil {
		err = install(ctx, cfg, log.Printf, components, jobs)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// install installs the components, with the jobs around them. One that fails stops no other one.
func install(ctx context.Context, cfg *rest.Config, logf func(string, ...any), components []string, jobs []jobmanager.Registration) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	m, err := jobmanager.New(jobmanager.Options{
		Engine: jobmanager.ForCluster(cfg),
		Migration: engine.Options{
			// Everything that the engine keeps or marks in the cluster is called so, and can be
			// taken for no other program's.
			Names: migration.Names{Program: "installer", Domain: "installer.example.org"},
			// The identity must be unique: of two installers with one name, each would take the
			// lock for its own.
			Identity: fmt.Sprintf("installer-%s-%d", host, os.Getpid()),
		},
	}, components, jobs...)
	if err != nil {
		return err
	}
	d, err := m.Begin(components)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(workers)
	for _, component := range components {
		group.Go(func() error {
			_ = worker(ctx, cfg, d, component) // End returns all errors
			return nil
		})
	}
	_ = group.Wait()                   // no worker returns an error
	_ = d.Post(ctx, jobmanager.Global) // its error is one of End's, too
	report, err := d.End()
	for _, j := range report.Jobs {
		logf("%s: %s: %s", j.Job, j.Result, cmp.Or(j.Message, j.Reason))
		for _, f := range j.Findings {
			logf("%s: %s: %s", j.Job, f.Severity, f)
		}
	}
	for _, c := range report.Components {
		logf("%s: %s: %s", c.Component, c.Result, c.Message)
	}
	return err
}

// worker installs one component, with the jobs before and after it.
func worker(ctx context.Context, cfg *rest.Config, d *jobmanager.Deployment, component string) error {
	if err := d.Pre(ctx, component); err != nil {
		return err
	}
	if err := apply(ctx, cfg, "manifests/"+component+".yaml"); err != nil {
		return d.Fail(component, err)
	}
	return d.Post(ctx, component)
}
