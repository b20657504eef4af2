// Package httpsource proves httpsource-sync on a real API server, with the real
// program as a process of its own and stand-ins for Kyma's controllers.
package httpsource

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// versions are those at which clusters serve Knative's kinds: Kyma 1.11 had
// v1alpha1 only, today's have v1 only.
var versions = []kubernetes.KnativeVersion{kubernetes.KnativeV1alpha1, kubernetes.KnativeV1}

// plane is one cluster for each version, shared by all tests of it.
type plane struct {
	*kubernetes.ControlPlane
	controllers *standin.Controllers
}

var (
	planesMu sync.Mutex
	planes   = map[kubernetes.KnativeVersion]*plane{}
)

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.After(func() error {
		var errs []error
		for _, p := range planes {
			p.controllers.Stop()
			errs = append(errs, p.Stop())
		}
		return errors.Join(errs...)
	}))
}

// on returns the cluster of a version, empty but for Kyma's namespaces.
func on(t *testing.T, version kubernetes.KnativeVersion) *plane {
	t.Helper()
	planesMu.Lock()
	defer planesMu.Unlock()
	p := planes[version]
	if p == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
		defer cancel()
		cluster, err := kubernetes.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.InstallCRDs(ctx, version); err != nil {
			t.Fatal(errors.Join(err, cluster.Stop()))
		}
		// The controllers outlive this test.
		controllers, err := standin.Start(context.Background(), cluster.Config(), standin.Options{})
		if err != nil {
			t.Fatal(errors.Join(err, cluster.Stop()))
		}
		p = &plane{cluster, controllers}
		planes[version] = p
	}
	p.reset(t, 0)
	return p
}

// reset leaves n Applications and nothing else of a former test.
func (p *plane) reset(t testing.TB, n int) {
	t.Helper()
	p.controllers.HealAll()
	if _, err := standin.Reset(t.Context(), p.Config(), n); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), poll.Within(30*time.Second))
	defer cancel()
	if err := p.controllers.WaitEmpty(ctx); err != nil {
		t.Fatal(err)
	}
}

// ready waits until the Applications' HTTPSources are ready.
func (p *plane) ready(t testing.TB, apps ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Within(30*time.Second))
	defer cancel()
	if err := p.controllers.WaitReady(ctx, apps...); err != nil {
		t.Fatal(err)
	}
}

// result is how a process ended.
type result struct {
	// Report is empty if there is none: the command line was wrong.
	*migration.Report
	exit           int
	stdout, stderr string
}

func run(t *testing.T, kubeconfig string, args ...string) result {
	t.Helper()
	p := suite.Run(t, process.Program{
		Binary: process.Build(t, "./cmd/httpsource-sync"),
		Args:   slices.Concat(args, []string{"--kubeconfig", kubeconfig, "--lease-duration=1s", "--output=json", "--log-format=json"}),
	})
	r := result{Report: &migration.Report{}, exit: p.Wait(), stdout: p.Stdout(), stderr: p.Stderr()}
	if r.stdout != "" {
		r.Report, _ = p.Report()
	}
	return r
}

func (r result) want(t *testing.T, exit int, wanted migration.Result) {
	t.Helper()
	if r.exit != exit || r.Result != wanted {
		t.Fatalf("got exit code %d, result %q; want %d, %q\n%s\n%s", r.exit, r.Result, exit, wanted, r.stdout, r.stderr)
	}
}

// elsewhere returns a kubeconfig of a server that does not exist.
func (p *plane) elsewhere(t *testing.T) string {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(p.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range cfg.Clusters {
		cluster.Server = "https://127.0.0.1:1"
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	return path
}
