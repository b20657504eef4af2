// Installer installs three components, two at a time. Before a component is installed, its
// migration jobs run.
//
// It is an example of how to use package engine: copy it. What an installer needs is in
// [install] and [migrate]:
//
//   - One [engine.SharedLock] for the whole installation. The workers share its Lease, so
//     that no other installer writes meanwhile, and none of them waits for another.
//   - An engine for each run of a job, with a seat at that lock.
//   - The exit code of the report decides whether the component is installed. A failed job
//     has been rolled back by then.
//
// A job decides by the state of the cluster whether there is anything to do. So an installer
// needs no record of which jobs have run: it runs them all, each time.
package main

import (
	"context"
	"errors"
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
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// workers is how many components are installed at a time.
const workers = 2

// component is what is installed: manifests/<name>.yaml, after its jobs.
type component struct {
	name string
	jobs []migration.Job
}

var components = []component{
	{name: "gateway", jobs: []migration.Job{ingressclass.Job{}}},
	{name: "shop", jobs: []migration.Job{relabel.Job{Namespace: "shop"}}},
	{name: "billing"},
}

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of the kubeconfig; in a Pod, none is needed")
	flag.Parse()
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		// With this cause the engine stops in order, and leaves its journal open for the next run.
		// Any other end of the context is a failure, and rolls back.
		if s, ok := (<-signals).(syscall.Signal); ok {
			cancel(engine.SignalError{Signal: s})
		}
	}()
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err == nil {
		err = install(ctx, cfg, log.Printf, components)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// install installs all components. One that fails stops no other one.
func install(ctx context.Context, cfg *rest.Config, logf func(string, ...any), components []component) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lock := engine.NewSharedLock()
	defer lock.Release()
	errs := make([]error, len(components))
	var group errgroup.Group
	group.SetLimit(workers)
	for i, c := range components {
		group.Go(func() error {
			// The identity must be unique: of two installers with one name, each would take the lock for its own.
			opts := engine.Options{Identity: fmt.Sprintf("installer-%s-%d", host, os.Getpid())}
			if err := c.install(ctx, cfg, opts, lock, logf); err != nil {
				errs[i] = fmt.Errorf("cannot install %s: %w", c.name, err)
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errors.Join(errs...)
}

// install runs the jobs of the component, and installs it if all of them ended well.
func (c component) install(ctx context.Context, cfg *rest.Config, opts engine.Options, lock *engine.SharedLock, logf func(string, ...any)) error {
	for _, job := range c.jobs {
		opts.Seat = lock.Seat()
		if err := migrate(ctx, cfg, opts, job, logf); err != nil {
			return err
		}
	}
	if err := apply(ctx, cfg, "manifests/"+c.name+".yaml"); err != nil {
		return err
	}
	logf("%s: installed", c.name)
	return nil
}

// migrate runs one job.
func migrate(ctx context.Context, cfg *rest.Config, opts engine.Options, job migration.Job, logf func(string, ...any)) error {
	e, err := engine.New(cfg, opts)
	if err != nil {
		return err
	}
	report := e.Run(ctx, job)
	logf("%s: %s: %s", report.Job, report.Result, report.Message)
	for _, f := range report.Findings {
		logf("%s: %s: %s", report.Job, f.Severity, f)
	}
	if report.ExitCode() != migration.ExitOK {
		return fmt.Errorf("job %s: %s", report.Job, report.Message)
	}
	return nil
}
