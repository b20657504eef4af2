// Command demo migrates a sample Kyma 1.10 cluster, on this machine and nothing
// but this machine, and tells what it does. "make demo" runs it.
//
// It is the upgrade to Kyma 1.11 and on to 1.12 in the order of Kyma's installer,
// with all jobs. Everything in it is real except the controllers of Kyma and
// Knative, for which test/standin stands in: the API server, the garbage collector,
// Deployments and their pods' names, the audit log, and the jobs themselves, which
// are built and started as an operator would.
//
// The demo checks what it promises, and fails if anything is different. Its cluster
// is always its own: it ignores EVENTMESH_TEST_KUBECONFIG.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/samplecluster"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// starting keeps an adapter from being ready until the run waits for it.
var starting = standin.AdapterNotReadyFor(time.Hour)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := os.Unsetenv(kubernetes.KubeconfigEnv)
	if err == nil {
		err = run(ctx, "", os.Stdout)
	}
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "\ndemo: interrupted, and cleaned up")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "\ndemo: "+err.Error())
		os.Exit(1)
	}
}

// demo is what the chapters share.
type demo struct {
	cluster samplecluster.Cluster
	// bin has the jobs, and nats is the monitoring port of NATS Streaming.
	bin    string
	nats   *httptest.Server
	out    io.Writer
	before census
	// log is where the demo is in the audit log.
	log kubernetes.Mark
}

// run tells the chapters in order, and cleans up whatever happens. The jobs are in the directory
// bin; if it is "", they are built.
func run(ctx context.Context, bin string, out io.Writer) (err error) {
	d := &demo{out: out, bin: bin}
	defer func() { err = errors.Join(err, d.cleanUp()) }()
	for _, chapter := range []struct {
		title string
		tell  func(*demo, context.Context) error
	}{
		{"A Kyma 1.10 cluster", (*demo).begin},
		{"What is wrong with it", (*demo).sampleApplications},
		{"What would be done: plan", (*demo).plan},
		{"Kyma 1.11: before core is upgraded", (*demo).expand},
		{"After core: too early to remove anything", (*demo).tooEarly},
		{"Before application-connector: the last gate", (*demo).gate},
		{"application-connector: the switch", (*demo).switchOver},
		{"After application-connector: the Event Bus goes", (*demo).contract},
		{"And once more: nothing is left to do", (*demo).again},
		{"Kyma 1.12: what the Event Bus has left", (*demo).purge},
		{"Before and after", (*demo).summary},
	} {
		d.chapter(chapter.title)
		if err := chapter.tell(d, ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) chapter(title string) {
	fmt.Fprintf(d.out, "\n%s\n%s\n\n", title, strings.Repeat("=", len(title)))
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) begin(ctx context.Context) error {
	d.say("A real control plane starts on this machine: etcd, kube-apiserver and kube-controller-manager.")
	if err := d.cluster.Start(ctx, samplecluster.Options{UserAgent: "eventmesh-demo", Starting: starting}); err != nil {
		return err
	}
	d.nats = httptest.NewServer(&d.cluster)
	d.say("It is Kubernetes 1.%d, and has the kinds of Kyma 1.10, and of the Knative that came with it.", d.cluster.Minor)
	d.say("%d Applications are in it, and stand-ins for the controllers of Kyma and Knative are at work.", len(d.cluster.Sample))

	if d.bin == "" {
		return d.build(ctx)
	}
	return nil
}

// build builds the jobs, and not into bin/, which holds what "make build" has built.
func (d *demo) build(ctx context.Context) error {
	cache, err := kubernetes.CacheDir()
	if err != nil {
		return err
	}
	d.bin = filepath.Join(cache, "demo")
	if err := os.MkdirAll(d.bin, 0o755); err != nil {
		return err
	}
	// Only what runs here is linked, and without what a debugger needs.
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", d.bin + "/"}
	for _, e := range registry.Jobs(registry.All()) {
		program := "./cmd/" + e.Job.Name()
		if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
			continue // eventmesh-migrate alone has it
		}
		args = append(args, program)
	}
	build := exec.CommandContext(ctx, "go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the jobs (run the demo from the repository's root): %w\n%s", err, out)
	}
	d.say("The jobs are built: %s.", d.bin)
	return nil
}

func (d *demo) sampleApplications(ctx context.Context) error {
	d.say("From Kyma 1.11 on, events of an Application are taken by its HTTPSource. These have one:\n")
	d.list(standin.InPlace, standin.FrozenInPlace)
	d.say("This one has one, too, but its adapter is still starting:\n")
	d.list(standin.Starting)
	d.say("These have none, since somebody deleted it. Their events would be lost after the upgrade:\n")
	d.list(standin.DeletedByHand)
	d.say("These have none either, but making one by hand would break the next upgrade or")
	d.say("installation of their Helm 2 release, which brings its own:\n")
	d.list(standin.UpgradeFailed, standin.InstallFailed)
	d.say("And these are not to have one: never installed, or left out of the migration by a label:\n")
	d.list(standin.NeverInstalled, standin.OptedOut)
	d.say("%d Kyma Subscriptions are served by the Event Bus alone, which Kyma 1.12 removes. And one", len(d.cluster.Subscriptions()))
	d.say("ServiceInstance, shop/%s, is from before Kyma 1.9: the mesh does not know it.", samplecluster.OldInstance)
	var err error
	d.before, err = d.census(ctx)
	return err
}

func (d *demo) list(states ...standin.State) {
	d.say("  %s\n", strings.Join(d.cluster.Sample.In(states...), ", "))
}

func (d *demo) mark(ctx context.Context) (err error) {
	d.log, err = d.cluster.Mark(ctx)
	return err
}

// wroteNothing checks the API server's audit log.
func (d *demo) wroteNothing(ctx context.Context, jobs ...string) error {
	n := 0
	for _, job := range jobs {
		requests, err := d.cluster.Requests(ctx, d.log, kubernetes.By(job))
		if err != nil {
			return err
		}
		for _, r := range requests {
			if kubernetes.IsWrite(r) {
				return fmt.Errorf("%s was to write nothing, but: %s", job, r)
			}
		}
		if len(requests) == 0 {
			return errors.New("the audit log has no request of " + job + " at all")
		}
		n += len(requests)
	}
	d.say("\nChecked in the API server's audit log: %d requests, and not one write.", n)
	return nil
}

// cleanUp runs on a context of its own: it is due after a Ctrl-C, too.
func (d *demo) cleanUp() error {
	if d.nats != nil {
		d.nats.Close()
	}
	err := d.cluster.Close()
	if err == nil && d.cluster.ControlPlane != nil {
		d.say("\nThe control plane is stopped, and its files are removed.")
	}
	return err
}
