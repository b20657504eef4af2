package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

const (
	// largeBar is what a run may take on the largest cluster, in MiB: half of what the charts give
	// a Job.
	largeBar = 256
	// maxAnnotations is how many bytes of annotations the API server accepts of one object.
	maxAnnotations = 262144
	// missing is how many HTTPSources the runs create, and the undos delete.
	missing = 100
)

// largeWorld is a cluster that is large in one way.
type largeWorld struct {
	name string
	// n is the number of Applications.
	n int
	// grow makes an Application or an HTTPSource large before it is created, nil for none.
	grow func(i int, obj *unstructured.Unstructured)
}

// large runs the operator's program on clusters that are large in one way each, with n Applications
// in the first.
func (b *bench) large(ctx context.Context, n int) error {
	annotated := func(_ int, obj *unstructured.Unstructured) {
		annotations := obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		const key = "example.com/large"
		room := maxAnnotations - len(key)
		for key, value := range annotations {
			room -= len(key) + len(value)
		}
		annotations[key] = strings.Repeat("x", room)
		obj.SetAnnotations(annotations)
	}
	var failed []error
	fmt.Fprintln(b.out, "\nlarge clusters\tcommand\texit code\ttime\tCPU\tpeak RSS")
	for _, w := range []largeWorld{
		{fmt.Sprintf("%d Applications", n), n, nil},
		{"500 Applications and their HTTPSources, of 262,144 bytes of annotations", 500, annotated},
		{"1,000 services in each of 20 Applications of 200", 200, func(i int, obj *unstructured.Unstructured) {
			if obj.GetKind() == "Application" && i < 20 {
				offer(obj, 1000)
			}
		}},
	} {
		failed = append(failed, b.largeWorld(ctx, w))
	}
	return errors.Join(failed...)
}

// offer gives an Application n services with an API and events, as the application-registry writes
// them.
func offer(app *unstructured.Unstructured, n int) {
	services := make([]any, n)
	for i := range services {
		services[i] = map[string]any{
			"id": fmt.Sprintf("ac031e8c-9aa4-4cb7-8999-%012d", i), "name": fmt.Sprintf("service-%d", i),
			"displayName": fmt.Sprintf("Service %d", i), "description": "A service", "longDescription": "A longer description of this service.",
			"providerDisplayName": "SAP Hybris", "labels": map[string]any{"connected-app": app.GetName()}, "tags": []any{"tag"},
			"entries": []any{
				map[string]any{"type": "API", "gatewayUrl": fmt.Sprintf("http://service-%d.kyma-integration.svc.cluster.local", i), "accessLabel": fmt.Sprintf("access-%d", i), "targetUrl": "https://example.com"},
				map[string]any{"type": "Events"},
			},
		}
	}
	_ = unstructured.SetNestedSlice(app.Object, services, "spec", "services")
}

func (b *bench) largeWorld(ctx context.Context, w largeWorld) error {
	if _, err := standin.Reset(ctx, b.cluster.Config(), 0); err != nil {
		return err
	}
	controllers, err := standin.Start(ctx, b.cluster.Config(), standin.Options{})
	if err != nil {
		return err
	}
	defer controllers.Stop()
	ready, err := b.lastReady(ctx, w.n-missing)
	if err != nil {
		return err
	}
	names := standin.Names(w.n)
	if err := b.put(ctx, w, names); err != nil {
		return err
	}
	select {
	case <-ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	var above []error
	for _, args := range [][]string{
		{"check"},
		{"plan", "--job", "httpsource-sync"},
		{"run", "--job", "httpsource-sync"},
		{"undo", "httpsource-sync", "--yes"},
	} {
		code, usage, err := b.operator(ctx, args...)
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "%s\t%s\t%d\t%.1f s\t%.1f s\t%.1f MiB\n", w.name, strings.Join(args, " "), code, usage.Seconds, usage.CPUSeconds, usage.PeakMiB)
		if usage.PeakMiB > largeBar {
			above = append(above, fmt.Errorf("%s: %s took %.0f MiB, and may take %d", w.name, strings.Join(args, " "), usage.PeakMiB, largeBar))
		}
	}
	return errors.Join(above...)
}

// put creates the Applications, and the HTTPSources but the last ones.
func (b *bench) put(ctx context.Context, w largeWorld, names []string) error {
	cfg := b.cluster.Config()
	cfg.UserAgent = "bench-setup"
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(16)
	for i, name := range names {
		objects := []*unstructured.Unstructured{standin.Application(name, false)}
		if i < len(names)-missing {
			objects = append(objects, standin.HTTPSource(name))
		}
		work.Go(func() error {
			for _, obj := range objects {
				if w.grow != nil {
					w.grow(i, obj)
				}
				resource := standin.HTTPSources
				if obj.GetKind() == "Application" {
					resource = standin.Applications
				}
				if _, err := client.Resource(resource).Namespace(obj.GetNamespace()).Create(ctx, obj, metav1.CreateOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return work.Wait()
}

// operator runs the operator's program. A code other than 0 is not an error here.
func (b *bench) operator(ctx context.Context, args ...string) (int, measure.Usage, error) {
	cmd := exec.CommandContext(ctx, b.binaries["eventmesh-migrate"], append(args, "--kubeconfig", b.cluster.Kubeconfig, "-o", "json", "--log-level", "error")...)
	cmd.Stderr = os.Stderr
	usage, err := measure.Run(cmd)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), usage, nil
	}
	return 0, usage, err
}
