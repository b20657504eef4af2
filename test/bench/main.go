// Command bench measures httpsource-sync and trigger-sync on a real API server,
// and prints the tables of docs/measurements.md.
//
// Absolute times on a shared machine say little. The job is therefore compared with its floor, a
// bare client-go loop that only makes the same creations at the same concurrency. Both run in turns
// in one run of this program, which reports the median of the ratios. Requests are counted from the
// API server's audit log and are exact.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/httpsource"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

func main() {
	sizes := flag.String("sizes", "500,1000,2000", "numbers of missing HTTPSources to pair with the floor")
	pairs := flag.Int("pairs", 5, "how often each size is measured")
	memory := flag.Int("memory", 2000, "number of missing HTTPSources of the run whose memory and exit are measured; 0: none")
	migrated := flag.Int("migrated", 5000, "number of Applications of the migrated cluster; 0: none")
	subs := flag.String("subscriptions", "500,1000,5000", "numbers of Kyma Subscriptions to pair with the floor, rising; empty: none")
	end := flag.String("to-the-end", "500,5000,20000", "numbers of Kyma Subscriptions to migrate to the end, beside the same writes; empty: none")
	large := flag.Int("large", 8000, "number of Applications of the largest cluster on which the memory of eventmesh-migrate is measured; 0: none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *sizes, *pairs, *memory, *migrated, *large, *subs, *end)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type bench struct {
	cluster *kubernetes.ControlPlane
	// binaries are paths by the name of the program.
	binaries map[string]string
	out      *tabwriter.Writer
}

func run(ctx context.Context, sizes string, pairs, memory, migrated, large int, subs, end string) (err error) {
	sources, err := numbers("sizes", sizes)
	if err != nil {
		return err
	}
	rising, err := numbers("subscriptions", subs)
	if err != nil {
		return err
	}
	ends, err := numbers("to-the-end", end)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "eventmesh-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{binaries: map[string]string{}, out: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
	for _, name := range []string{"httpsource-sync", "trigger-sync", "eventmesh-migrate"} {
		b.binaries[name] = filepath.Join(dir, name)
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.binaries[name], "./cmd/"+name)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("cannot build %s (run this in the root of the repository): %w", name, err)
		}
	}
	// Without the controller of Deployments: what their status says is written here.
	controllers := kubernetes.Controllers("garbage-collector-controller", "namespace-controller", "serviceaccount-controller")
	if b.cluster, err = kubernetes.Start(ctx, controllers); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.cluster.InstallCRDs(ctx, kubernetes.KnativeV1alpha1); err != nil {
		return err
	}
	if len(sources) > 0 {
		fmt.Fprintln(b.out, "HTTPSources\tjob / floor, median\tmin … max\tfloor, median\tjob, median\tjournal writes\tother writes")
	}
	for _, n := range sources {
		if err := b.paired(ctx, n, pairs); err != nil {
			return err
		}
	}
	if memory > 0 {
		if err := b.watched(ctx, memory); err != nil {
			return err
		}
	}
	if migrated > 0 {
		if err := b.nothingToDo(ctx, migrated); err != nil {
			return err
		}
	}
	if large > 0 {
		if err := b.large(ctx, large); err != nil {
			return errors.Join(err, b.out.Flush())
		}
	}
	if len(rising)+len(ends) > 0 {
		if err := b.teamwork(ctx, rising, ends, pairs); err != nil {
			return err
		}
	}
	return b.out.Flush()
}

// numbers reads a list of sizes.
func numbers(name, list string) ([]int, error) {
	var all []int
	for one := range strings.SplitSeq(list, ",") {
		if one == "" {
			continue
		}
		n, err := strconv.Atoi(one)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", name, err)
		}
		all = append(all, n)
	}
	return all, nil
}

// withoutWaiting is the job with all its decisions and none of its waits, as the
// floor does not wait either.
type withoutWaiting struct{ migration.Job }

func (withoutWaiting) Await(*migration.Change) []migration.Condition { return nil }

func (b *bench) paired(ctx context.Context, n, pairs int) error {
	var ratios, floors, jobs []float64
	var journal, others int
	for i := range pairs {
		measure := []func(context.Context, int) (float64, error){b.floor, b.job}
		var took [2]float64
		for k := range 2 {
			which := (k + i) % 2 // A B, B A, A B …
			if _, err := standin.Reset(ctx, b.cluster.Config(), n); err != nil {
				return err
			}
			mark, err := b.cluster.Mark(ctx)
			if err != nil {
				return err
			}
			if took[which], err = measure[which](ctx, n); err != nil {
				return err
			}
			if which == 1 {
				if journal, others, err = b.writes(ctx, mark); err != nil {
					return err
				}
			}
		}
		floors, jobs, ratios = append(floors, took[0]), append(jobs, took[1]), append(ratios, took[1]/took[0])
		fmt.Fprintf(os.Stderr, "%d HTTPSources, pair %d: floor %.2f s, job %.2f s\n", n, i+1, took[0], took[1])
	}
	slices.Sort(ratios)
	fmt.Fprintf(b.out, "%d\t%.2f\t%.2f … %.2f\t%.2f s\t%.2f s\t%d (%.1f %%)\t%d\n", n, median(ratios), ratios[0], ratios[len(ratios)-1],
		median(floors), median(jobs), journal, 100*float64(journal)/float64(journal+others), others)
	return nil
}

func (b *bench) floor(ctx context.Context, n int) (float64, error) {
	cfg := b.cluster.Config()
	cfg.UserAgent = "floor"
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	var work errgroup.Group
	work.SetLimit(16)
	for _, name := range standin.Names(n) {
		work.Go(func() error {
			_, err := client.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace).Create(ctx, asCreated(name), metav1.CreateOptions{})
			return err
		})
	}
	err = work.Wait()
	return time.Since(began).Seconds(), err
}

// asCreated is the object that the job creates, byte for byte but for the run's
// name: the server's work for it depends on its metadata.
func asCreated(name string) *unstructured.Unstructured {
	obj := standin.HTTPSource(name)
	obj.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"})
	obj.SetAnnotations(map[string]string{
		"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": standin.IntegrationNamespace,
		kyma.MarkAnnotation: "20200101000000-xxxxx/1000/0",
	})
	return obj
}

func (b *bench) job(ctx context.Context, n int) (float64, error) {
	cfg := b.cluster.Config()
	cfg.UserAgent = "job"
	began := time.Now()
	engine, err := engine.New(cfg, engine.Options{Names: cli.Names, StateNamespace: kyma.StateNamespace, Identity: "bench"})
	if err != nil {
		return 0, err
	}
	report := engine.Run(ctx, withoutWaiting{httpsource.New()})
	took := time.Since(began).Seconds()
	if report.Result != migration.Succeeded || len(report.Changes) != n {
		return 0, fmt.Errorf("the job ended with %s, %d changes: %s", report.Result, len(report.Changes), report.Message)
	}
	return took, nil
}

func (b *bench) writes(ctx context.Context, since kubernetes.Mark) (journal, others int, err error) {
	requests, err := b.cluster.Requests(ctx, since, kubernetes.All(kubernetes.By("job"), kubernetes.IsWrite))
	for _, r := range requests {
		if r.Resource == "secrets" {
			journal++
		} else {
			others++
		}
	}
	return journal, others, err
}

// watched runs the real program against controllers that make its objects ready.
func (b *bench) watched(ctx context.Context, n int) error {
	if _, err := standin.Reset(ctx, b.cluster.Config(), n); err != nil {
		return err
	}
	controllers, err := standin.Start(ctx, b.cluster.Config(), standin.Options{})
	if err != nil {
		return err
	}
	defer controllers.Stop()
	ready, err := b.lastReady(ctx, n)
	if err != nil {
		return err
	}
	began := time.Now()
	report, usage, err := b.run(ctx, "httpsource-sync")
	exited := time.Now()
	if err != nil {
		return err
	}
	if report.Result != migration.Succeeded {
		return fmt.Errorf("the job ended with %s: %s", report.Result, report.Message)
	}
	fmt.Fprintf(b.out, "\nwith all waits, %d HTTPSources\t%.1f s in all\t%.2f s from the last one ready to exit\t%.1f MiB peak RSS\t%.2f s CPU\n",
		n, exited.Sub(began).Seconds(), exited.Sub(<-ready).Seconds(), usage.PeakMiB, usage.CPUSeconds)
	return nil
}

// lastReady sends the moment at which the n-th HTTPSource became ready.
func (b *bench) lastReady(ctx context.Context, n int) (<-chan time.Time, error) {
	client, err := dynamic.NewForConfig(b.cluster.Config())
	if err != nil {
		return nil, err
	}
	w, err := client.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	done := make(chan time.Time, 1)
	go func() {
		defer w.Stop()
		seen := map[string]bool{}
		var last time.Time
		for event := range w.ResultChan() {
			obj, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
			for _, c := range conditions {
				if c, ok := c.(map[string]any); ok && c["type"] == "Ready" && c["status"] == "True" && !seen[obj.GetName()] {
					seen[obj.GetName()] = true
					last = time.Now()
				}
			}
			if len(seen) == n {
				done <- last
				return
			}
		}
	}()
	return done, nil
}

// nothingToDo runs the real program on a cluster that is migrated.
func (b *bench) nothingToDo(ctx context.Context, n int) error {
	names, err := standin.Reset(ctx, b.cluster.Config(), n)
	if err != nil {
		return err
	}
	controllers, err := standin.Start(ctx, b.cluster.Config(), standin.Options{})
	if err != nil {
		return err
	}
	defer controllers.Stop()
	ready, err := b.lastReady(ctx, n)
	if err != nil {
		return err
	}
	if err := standin.PutHTTPSources(ctx, b.cluster.Config(), names...); err != nil {
		return err
	}
	select {
	case <-ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	fmt.Fprintf(b.out, "\nnothing to do, %d Applications\ttime\tCPU of the job\tpeak RSS\tlist pages\tother reads\twrites\n", n)
	for range 3 {
		mark, err := b.cluster.Mark(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		report, usage, err := b.run(ctx, "httpsource-sync")
		took := time.Since(began)
		if err != nil {
			return err
		}
		if report.Result != migration.NothingToDo {
			return fmt.Errorf("the job ended with %s: %s", report.Result, report.Message)
		}
		requests, err := b.cluster.Requests(ctx, mark, kubernetes.By("httpsource-sync"))
		if err != nil {
			return err
		}
		pages, reads, writes := 0, 0, 0
		for _, r := range requests {
			switch {
			case kubernetes.IsWrite(r):
				writes++
			case r.Verb == "list" && r.Resource != "secrets":
				pages++
			default:
				reads++
			}
		}
		fmt.Fprintf(b.out, "\t%.2f s\t%.2f s\t%.1f MiB\t%d\t%d\t%d\n", took.Seconds(), usage.CPUSeconds, usage.PeakMiB, pages, reads, writes)
	}
	return nil
}

// run runs a job, and reads its report.
func (b *bench) run(ctx context.Context, job string, args ...string) (*migration.Report, measure.Usage, error) {
	cmd := exec.CommandContext(ctx, b.binaries[job], append([]string{"--kubeconfig", b.cluster.Kubeconfig, "--output", "json", "--log-format", "json", "--log-level", "warn"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	usage, err := measure.Run(cmd)
	if err != nil {
		return nil, usage, fmt.Errorf("%s: %w", job, err)
	}
	report := &migration.Report{}
	if err := json.Unmarshal(out.Bytes(), report); err != nil {
		return nil, usage, fmt.Errorf("cannot read the report: %w", err)
	}
	return report, usage, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
