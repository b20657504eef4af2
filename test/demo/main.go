// Command demo migrates a sample Kyma 1.10 cluster, on this machine and nothing
// but this machine, and tells what it does. "make demo" runs it.
//
// Everything in it is real except the controllers of Kyma and Knative, for which
// test/kyma stands in: the API server, the garbage collector, the audit log, and
// httpsource-sync itself, which is built and started as an operator would.
//
// The demo checks what it promises, and fails if anything is different. With
// KUBECONFIG set it uses that cluster, which must have no Applications: they, and
// what belongs to them, are deleted at the end.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/migration"
	"github.com/kyma-project/eventmesh-migration/test/controlplane"
	"github.com/kyma-project/eventmesh-migration/test/kyma"
)

const job = "httpsource-sync"

// starting keeps an adapter from being ready until the run waits for it.
var starting = kyma.AdapterNotReadyFor(time.Hour)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
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
	cp          *controlplane.ControlPlane
	cfg         *rest.Config
	binary      string
	controllers *kyma.Controllers
	sample      kyma.Sample
	out         io.Writer
	before      census
	// log is where the demo is in the audit log.
	log controlplane.Mark
}

// run tells the chapters in order, and cleans up whatever happens.
func run(ctx context.Context) (err error) {
	d := &demo{out: os.Stdout}
	defer func() { err = errors.Join(err, d.cleanUp()) }()
	for _, chapter := range []struct {
		title string
		tell  func(*demo, context.Context) error
	}{
		{"A Kyma 1.10 cluster", (*demo).cluster},
		{"What is wrong with it", (*demo).sampleApplications},
		{"What would be done: httpsource-sync plan", (*demo).plan},
		{"Doing it: httpsource-sync", (*demo).migrate},
		{"And once more: nothing is left to do", (*demo).again},
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

func (d *demo) cluster(ctx context.Context) error {
	if os.Getenv("KUBECONFIG") == "" {
		d.say("A real control plane starts on this machine: etcd, kube-apiserver and kube-controller-manager.")
	} else {
		d.say("KUBECONFIG is set: its cluster is used.")
	}
	cp, err := controlplane.Start(ctx)
	if err != nil {
		return err
	}
	d.cp, d.cfg = cp, cp.Config()
	if err := cp.InstallCRDs(ctx, controlplane.KnativeV1alpha1); err != nil {
		return err
	}
	if err := kyma.Clear(ctx, d.cfg); err != nil {
		return err
	}
	d.say("It has the kinds of Kyma 1.10, and of the Knative that came with it.")

	if d.controllers, err = kyma.Start(ctx, d.cfg, kyma.Options{}); err != nil {
		return err
	}
	// Real adapters take a while to start: it is what there is to wait for.
	for i, app := range kyma.SampleApplications().In(kyma.DeletedByHand) {
		d.controllers.Break(kyma.AdapterNotReadyFor(time.Second+time.Duration(i)*400*time.Millisecond), app)
	}
	d.controllers.Break(starting, kyma.SampleApplications().In(kyma.Starting)...)
	if d.sample, err = kyma.LoadSample(ctx, d.cfg); err != nil {
		return err
	}
	if err := d.controllers.WaitReady(ctx, d.sample.In(kyma.InPlace, kyma.FrozenInPlace)...); err != nil {
		return err
	}
	d.say("%d Applications are in it, and a stand-in for the controllers of Kyma and Knative is at work.", len(d.sample))

	d.binary, err = filepath.Abs(filepath.Join("bin", job))
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", d.binary, "./cmd/"+job)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s (run the demo from the repository's root): %w\n%s", job, err, out)
	}
	d.say("bin/%s is built.", job)
	return nil
}

func (d *demo) sampleApplications(ctx context.Context) error {
	d.say("From Kyma 1.11 on, events of an Application are taken by its HTTPSource. These have one:\n")
	d.list(kyma.InPlace, kyma.FrozenInPlace)
	d.say("This one has one, too, but its adapter is still starting:\n")
	d.list(kyma.Starting)
	d.say("These have none, since somebody deleted it. Their events would be lost after the upgrade:\n")
	d.list(kyma.DeletedByHand)
	d.say("These have none either, but making one by hand would break the next upgrade or")
	d.say("installation of their Helm 2 release, which brings its own:\n")
	d.list(kyma.UpgradeFailed, kyma.InstallFailed)
	d.say("And these are not to have one: never installed, or left out of the migration by a label:\n")
	d.list(kyma.NeverInstalled, kyma.OptedOut)
	var err error
	d.before, err = takeCensus(ctx, d.cfg)
	return err
}

func (d *demo) list(states ...kyma.State) {
	d.say("  %s\n", strings.Join(d.sample.In(states...), ", "))
}

func (d *demo) plan(ctx context.Context) error {
	d.say("A plan reads, and writes nothing.\n")
	if err := d.mark(ctx); err != nil {
		return err
	}
	if err := d.job(ctx, migration.Planned, "plan"); err != nil {
		return err
	}
	return d.wroteNothing(ctx)
}

func (d *demo) migrate(ctx context.Context) error {
	d.say("Each change is journaled before it is made. What fails is put back; a run that is")
	d.say("killed is finished by the next one. The adapters take some seconds to start.\n")
	heal := time.AfterFunc(2*time.Second, func() { d.controllers.Heal(starting, d.sample.In(kyma.Starting)...) })
	defer heal.Stop()
	if err := d.job(ctx, migration.Succeeded); err != nil {
		return err
	}
	after, err := takeCensus(ctx, d.cfg)
	if err != nil {
		return err
	}
	for _, app := range d.sample {
		source, existed := after.sources[app.Name], d.before.sources[app.Name]
		toBeReady := app.State == kyma.DeletedByHand || app.State == kyma.Starting
		if toBeReady && !source.ready {
			return fmt.Errorf("the HTTPSource of %s, its Channel or its adapter is not ready after the run", app.Name)
		}
		if app.State != kyma.DeletedByHand && (source.uid != existed.uid || source.generation != existed.generation) {
			return fmt.Errorf("the HTTPSource of %s (%s) was touched", app.Name, app.State)
		}
	}
	d.say("\nChecked: every HTTPSource that was missing is there and ready, with Channel and adapter,")
	d.say("and none of the others was touched.")
	return nil
}

func (d *demo) again(ctx context.Context) error {
	if err := d.mark(ctx); err != nil {
		return err
	}
	if err := d.job(ctx, migration.NothingToDo); err != nil {
		return err
	}
	return d.wroteNothing(ctx)
}

func (d *demo) summary(ctx context.Context) error {
	after, err := takeCensus(ctx, d.cfg)
	if err != nil {
		return err
	}
	missing := len(d.sample.In(kyma.DeletedByHand))
	rows := []struct {
		what          string
		before, after int
		gained        int
	}{
		{"Applications", d.before.applications, after.applications, 0},
		{"HTTPSources, ready with Channel and adapter", d.before.ready(), after.ready(), missing + len(d.sample.In(kyma.Starting))},
		{"Applications whose events would be lost", missing - d.present(d.before), missing - d.present(after), -missing},
		{"Applications left to their next Helm 2 upgrade", d.left(d.before), d.left(after), 0},
	}
	d.say("  %-50s%8s%8s", "", "before", "after")
	for _, r := range rows {
		d.say("  %-50s%8d%8d", r.what, r.before, r.after)
		if r.after-r.before != r.gained {
			return fmt.Errorf("%s: %d before and %d after the run, which is not what was promised", r.what, r.before, r.after)
		}
	}
	return nil
}

// present counts the Applications the job was to repair that can take events.
func (d *demo) present(c census) int {
	n := 0
	for _, app := range d.sample.In(kyma.DeletedByHand) {
		if c.sources[app].ready {
			n++
		}
	}
	return n
}

// left counts the Applications without HTTPSource whose release will bring it.
func (d *demo) left(c census) int {
	n := 0
	for _, app := range d.sample.In(kyma.UpgradeFailed, kyma.InstallFailed) {
		if c.sources[app].uid == "" {
			n++
		}
	}
	return n
}

// job runs the real binary on this terminal, and expects exit code 0 and a
// report with this result.
func (d *demo) job(ctx context.Context, result migration.Result, args ...string) error {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		// Elsewhere the log is JSON, which is not for people.
		args = append(args, "--log-format=console")
	}
	line := "$ " + strings.Join(append([]string{"bin/" + job}, args...), " ")
	d.say("%s", line)
	var report bytes.Buffer
	cmd := exec.CommandContext(ctx, d.binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.cp.Kubeconfig)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &report), os.Stderr
	// In a group of its own, a Ctrl-C reaches it once, by Cancel, and it gets
	// the time to end properly.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	if headline, _, _ := strings.Cut(report.String(), "\n"); !strings.HasSuffix(headline, ": "+string(result)) {
		return fmt.Errorf("%s: the report says %q, not %q", line, headline, result)
	}
	return nil
}

func (d *demo) mark(ctx context.Context) error {
	if !d.cp.Own() {
		return nil
	}
	var err error
	d.log, err = d.cp.Mark(ctx)
	return err
}

// wroteNothing checks the API server's audit log, which only an own cluster has.
func (d *demo) wroteNothing(ctx context.Context) error {
	if !d.cp.Own() {
		return nil
	}
	requests, err := d.cp.Requests(ctx, d.log, controlplane.By(job))
	if err != nil {
		return err
	}
	for _, r := range requests {
		if controlplane.IsWrite(r) {
			return fmt.Errorf("%s was to write nothing, but: %s", job, r)
		}
	}
	if len(requests) == 0 {
		return errors.New("the audit log has no request of " + job + " at all")
	}
	d.say("\nChecked in the API server's audit log: %d requests, and not one write.", len(requests))
	return nil
}

// cleanUp runs on a context of its own: it is due after a Ctrl-C, too.
func (d *demo) cleanUp() error {
	if d.cp == nil {
		return nil
	}
	var err error
	if d.controllers != nil {
		d.controllers.Stop()
	}
	if !d.cp.Own() && d.sample != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = kyma.Clear(ctx, d.cfg)
		d.say("\nThe sample's Applications are deleted; CRDs and namespaces stay.")
	}
	err = errors.Join(err, d.cp.Stop())
	if d.cp.Own() && err == nil {
		d.say("\nThe control plane is stopped, and its files are removed.")
	}
	return err
}
