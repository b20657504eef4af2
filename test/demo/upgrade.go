package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

func (d *demo) plan(ctx context.Context) error {
	d.say("A plan reads, and writes nothing. This is the first job's:\n")
	if err := d.mark(ctx); err != nil {
		return err
	}
	if err := d.job(ctx, migration.Planned, all, "httpsource-sync", "plan"); err != nil {
		return err
	}
	return d.wroteNothing(ctx, "httpsource-sync")
}

// expand is what the hooks of core do before it is upgraded.
func (d *demo) expand(ctx context.Context) error {
	d.say("Each change is journaled before it is made. What fails is rolled back; a run that is")
	d.say("killed is finished by the next one. The adapters take some seconds to start.\n")
	heal := time.AfterFunc(2*time.Second, func() { d.cluster.Controllers.Heal(starting, d.cluster.Sample.In(standin.Starting)...) })
	defer heal.Stop()
	if err := d.job(ctx, migration.Succeeded, logged, "httpsource-sync", "run"); err != nil {
		return err
	}
	after, err := d.census(ctx)
	if err != nil {
		return err
	}
	for _, app := range d.cluster.Sample {
		source, existed := after.sources[app.Name], d.before.sources[app.Name]
		toBeReady := app.State == standin.DeletedByHand || app.State == standin.Starting
		if toBeReady && !source.ready {
			return fmt.Errorf("the HTTPSource of %s, its Channel or its adapter is not ready after the run", app.Name)
		}
		if app.State != standin.DeletedByHand && (source.uid != existed.uid || source.generation != existed.generation) {
			return fmt.Errorf("the HTTPSource of %s (%s) was changed", app.Name, app.State)
		}
	}
	d.say("\nChecked: every HTTPSource that was missing is there and ready, with Channel and adapter,")
	d.say("and none of the others was changed.\n")

	d.say("The old ServiceInstance gets what it lacks in the mesh, and is not changed itself:\n")
	if err := d.job(ctx, migration.Succeeded, all, "serviceinstance-recreate", "run"); err != nil {
		return err
	}
	d.say("\nEach Kyma Subscription gets a Trigger. None is deleted: the event-services still post to")
	d.say("the Event Bus, which must not lose its Subscriptions now. That is deferred:\n")
	if err := d.job(ctx, migration.DeferredResult, some, "trigger-sync", "run"); err != nil {
		return err
	}
	if after, err = d.census(ctx); err != nil {
		return err
	}
	n := len(d.cluster.Subscriptions())
	if after.triggers != n || after.subscriptions != n || after.oldServices != d.before.oldServices {
		return fmt.Errorf("%d Triggers, %d Subscriptions, %d event-services on the Event Bus: old and new path do not stand side by side", after.triggers, after.subscriptions, after.oldServices)
	}
	d.say("\nChecked: %d Triggers are ready, and all %d Kyma Subscriptions are still there.", after.triggers, after.subscriptions)
	return nil
}

// tooEarly is what the hooks of core do after it.
func (d *demo) tooEarly(ctx context.Context) error {
	for _, job := range []string{"trigger-sync", "eventbus-scaledown"} {
		if err := d.job(ctx, migration.DeferredResult, some, job, "run"); err != nil {
			return err
		}
	}
	return nil
}

// gate is what the hooks of application-connector do before it is upgraded.
func (d *demo) gate(ctx context.Context) error {
	d.say("The same three jobs, and now nothing that the switch needs may be missing.\n")
	if err := d.job(ctx, migration.NothingToDo, some, "httpsource-sync", "run"); err != nil {
		return err
	}
	if err := d.job(ctx, migration.NothingToDo, some, "serviceinstance-recreate", "run", "--defer=fail"); err != nil {
		return err
	}
	return d.job(ctx, migration.DeferredResult, some, "trigger-sync", "run", "--require-triggers")
}

// switchOver is what application-operator of the new version does: it upgrades the
// release of each Application, with its event-service and its HTTPSource.
func (d *demo) switchOver(ctx context.Context) error {
	d.say("Application %s would keep the Event Bus up: with skipInstallation its event-service is", strings.Join(d.cluster.Sample.In(standin.FrozenInPlace), ", "))
	d.say("not upgraded. Its owner sets that to false, as the report of eventbus-scaledown told.\n")
	upgraded, err := d.cluster.Switch(ctx)
	if err != nil {
		return err
	}
	d.say("application-operator upgrades the releases of %d Applications: each event-service posts to the", upgraded)
	d.say("mesh from now on, and each release brings its HTTPSource, also those that were left to it.")
	return nil
}

// contract is what the hooks of application-connector do after it.
func (d *demo) contract(ctx context.Context) error {
	if err := d.job(ctx, migration.NothingToDo, some, "eventservice-verify", "run", "--defer=fail"); err != nil {
		return err
	}
	if err := d.job(ctx, migration.Succeeded, some, "trigger-sync", "run", "--defer=fail"); err != nil {
		return err
	}
	if err := d.job(ctx, migration.Succeeded, all, "eventbus-scaledown", "run", "--defer=fail"); err != nil {
		return err
	}
	after, err := d.census(ctx)
	if err != nil {
		return err
	}
	if after.subscriptions != 0 || after.triggers != len(d.cluster.Subscriptions()) || after.bus != 0 || after.oldServices != 0 {
		return fmt.Errorf("%d Subscriptions, %d Triggers, %d replicas of the Event Bus, %d event-services on it", after.subscriptions, after.triggers, after.bus, after.oldServices)
	}
	d.say("\nChecked: no Kyma Subscription is left, every Trigger is ready, and the Event Bus has no pod.")
	return nil
}

// again runs the whole chain once more.
func (d *demo) again(ctx context.Context) error {
	jobs := []string{"httpsource-sync", "serviceinstance-recreate", "eventservice-verify", "trigger-sync", "eventbus-scaledown"}
	for _, times := range []string{"Stored reports that say something else by now are written once more.", "And from then on, nothing at all is written."} {
		d.say("%s\n", times)
		if err := d.mark(ctx); err != nil {
			return err
		}
		for _, job := range jobs {
			if err := d.job(ctx, migration.NothingToDo, headline, job, "run"); err != nil {
				return err
			}
		}
	}
	return d.wroteNothing(ctx, jobs...)
}

// purge is what is left to do with Kyma 1.12.
func (d *demo) purge(ctx context.Context) error {
	for _, u := range standin.EventBus() {
		if err := d.cluster.Client.Resource(standin.Deployments).Namespace(standin.SystemNamespace).Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	d.say("Kyma 1.12 removes the release event-bus. The rest is asked about first, by the hook of the")
	d.say("chart cluster-essentials, and removed by hand, since nothing restores it permanently:\n")
	if err := d.job(ctx, migration.Planned, some, "eventbus-purge", "plan", "--fail-if-in-use", "--ignore-release"); err != nil {
		return err
	}
	return d.job(ctx, migration.Succeeded, all, "eventbus-purge", "run", "--yes")
}

func (d *demo) summary(ctx context.Context) error {
	after, err := d.census(ctx)
	if err != nil {
		return err
	}
	lost := len(d.cluster.Sample.In(standin.DeletedByHand))
	left := len(d.cluster.Sample.In(standin.UpgradeFailed, standin.InstallFailed))
	installed := len(d.cluster.Sample) - len(d.cluster.Sample.In(standin.NeverInstalled))
	subscriptions := len(d.cluster.Subscriptions())
	number := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	d.say("  %-62s%8s%8s", "", "before", "after")
	for _, r := range []struct {
		what                string
		before, after, want int
	}{
		{"Applications", d.before.applications, after.applications, len(d.cluster.Sample)},
		{"HTTPSources, ready with Channel and adapter", d.before.ready(), after.ready(), installed},
		{"Applications whose events would be lost after the switch", lost - d.present(d.before, standin.DeletedByHand), lost - d.present(after, standin.DeletedByHand), 0},
		{"Applications left to their next Helm 2 upgrade", left - d.present(d.before, standin.UpgradeFailed, standin.InstallFailed), left - d.present(after, standin.UpgradeFailed, standin.InstallFailed), 0},
		{"ServiceInstances that the mesh does not know", d.before.unknownInstances, after.unknownInstances, 0},
		{"Brokers, ready", d.before.brokers, after.brokers, d.cluster.Namespaces()},
		{"Triggers, ready", d.before.triggers, after.triggers, subscriptions},
		{"Kyma Subscriptions", d.before.subscriptions, after.subscriptions, 0},
		{"event-services that post to the Event Bus", d.before.oldServices, after.oldServices, 0},
		{"event-services that post to the mesh", d.before.newServices, after.newServices, installed},
		{"replicas of the Event Bus", int(d.before.bus), int(after.bus), 0},
		{"objects that only the Event Bus's controller lets go", int(d.before.held), int(after.held), 0},
		{"CustomResourceDefinition of Kyma Subscriptions", number(d.before.definition), number(after.definition), 0},
	} {
		d.say("  %-62s%8d%8d", r.what, r.before, r.after)
		if r.after != r.want {
			return fmt.Errorf("%s: %d after the migration, which promised %d", r.what, r.after, r.want)
		}
	}
	return nil
}

// present counts the Applications of these states that can take events.
func (d *demo) present(c census, states ...standin.State) int {
	n := 0
	for _, app := range d.cluster.Sample.In(states...) {
		if c.sources[app].ready {
			n++
		}
	}
	return n
}

// How much of a report is shown.
const (
	headline = 2
	some     = 7
	all      = 1 << 20
	// logged is all, and the log while it runs.
	logged = all + 1
)

// job runs the real binary on this terminal, and expects exit code 0 and a report
// with this result, of which it shows so many lines.
func (d *demo) job(ctx context.Context, result migration.Result, lines int, job string, args ...string) error {
	line := "$ " + job
	if len(args) > 0 && args[0] == "run" {
		line += strings.TrimPrefix(" "+strings.Join(args, " "), " run")
	} else {
		line += " " + strings.Join(args, " ")
	}
	if job == "trigger-sync" {
		// The stand-in for NATS Streaming runs on this machine, and in no pod.
		args = append(args, "--nats-monitoring-url="+d.nats.URL, "--observe-publishers=1s")
		line += " " + strings.Join(args[len(args)-2:], " ")
	}
	d.say("%s", line)
	log := []string{"--log-format=console", "--log-level=warn"}
	if lines == logged {
		log[1] = "--log-level=info"
	}
	var report bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(d.bin, job), append(args, log...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.cluster.Kubeconfig)
	cmd.Stdout, cmd.Stderr = &report, os.Stderr
	if lines >= all {
		cmd.Stdout = io.MultiWriter(d.out, &report)
	}
	// In a process group of its own, a Ctrl-C reaches it once, by Cancel, and it gets the time to
	// end properly.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	if lines < all {
		said := strings.Split(strings.TrimRight(report.String(), "\n"), "\n")
		if err == nil && len(said) > lines+1 {
			rest := len(said) - lines
			said = said[:lines]
			if lines > headline {
				said = append(said, fmt.Sprintf("  … and %d lines more", rest))
			}
		}
		d.say("%s\n", strings.Join(said, "\n"))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	if first, _, _ := strings.Cut(report.String(), "\n"); !strings.Contains(first, ": "+string(result)+" on ") {
		return fmt.Errorf("%s: the report says %q, not %q", line, first, result)
	}
	return nil
}
