//go:build e2e

// Package e2e proves what only pods can: that a job, in an image, in a Job, does what it does from
// a laptop, beside the real Knative Eventing and with pods that crash, hang and cannot be pulled.
// Kyma's own pieces are those of test/standin.
//
// Two clusters serve these tests, beside each other: node, a Kyma 1.10 cluster but for what runs in
// it, with Knative's kinds at v1alpha1 and nobody behind them; and knative, with Knative Eventing
// v0.49.2, which serves its kinds at v1. Releases that serve v1alpha1 do not run on a Kubernetes of
// today: there test/standin takes their part, in test/integration.
package e2e

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// cluster is one that runs pods, and its clients.
type cluster struct {
	*kubernetes.ControlPlane
	client  clientset.Interface
	dynamic dynamic.Interface

	mu     sync.Mutex
	images map[string]string
}

// clusters are those that were started.
var clusters struct {
	sync.Mutex
	node, knative *cluster
}

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.Needs("need a cluster that runs pods"), kubernetes.After(func() error {
		var errs []error
		for _, c := range []*cluster{clusters.node, clusters.knative} {
			if c != nil {
				errs = append(errs, c.Stop())
			}
		}
		return errors.Join(errs...)
	}))
}

// Two lanes run beside each other, each with one cluster at a time, or two: a cluster mostly waits.
// Tests of one lane run one after another. With three lanes, two processors are busy all the time,
// and what takes some seconds, such as the begin of a hook, does not end in its time.
var (
	upgrades sync.Mutex // of Kyma, by Helm
	others   sync.Mutex
)

// inLane runs a test beside those of the other lane.
func inLane(t *testing.T, lane *sync.Mutex) {
	t.Helper()
	t.Parallel()
	lane.Lock()
	t.Cleanup(lane.Unlock)
}

// node returns the cluster with Kyma's kinds, and Knative's at v1alpha1.
func node(t *testing.T) *cluster {
	t.Helper()
	return shared(t, &clusters.node, func(ctx context.Context, c *kubernetes.ControlPlane) error {
		return c.InstallCRDs(ctx, kubernetes.KnativeV1alpha1)
	}, kubernetes.Node())
}

// knative returns the cluster with Kyma's kinds and Knative Eventing.
func knative(t *testing.T) *cluster {
	t.Helper()
	return shared(t, &clusters.knative, func(ctx context.Context, c *kubernetes.ControlPlane) error {
		return c.InstallKnative(ctx)
	}, kubernetes.Knative())
}

func shared(t *testing.T, c **cluster, prepare func(context.Context, *kubernetes.ControlPlane) error, opts ...kubernetes.Option) *cluster {
	t.Helper()
	clusters.Lock()
	defer clusters.Unlock()
	if *c == nil {
		// Long enough to build what "make e2e" has built before.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
		defer cancel()
		started, err := startCluster(ctx, prepare, opts...)
		if err != nil {
			t.Fatal(err)
		}
		*c = started
	}
	return *c
}

func startCluster(ctx context.Context, prepare func(context.Context, *kubernetes.ControlPlane) error, opts ...kubernetes.Option) (*cluster, error) {
	plane, err := kubernetes.Start(ctx, opts...)
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: plane, images: map[string]string{}}
	c.client, err = clientset.NewForConfig(c.Config())
	if err == nil {
		c.dynamic, err = dynamic.NewForConfig(c.Config())
	}
	if err == nil {
		err = prepare(ctx, plane)
	}
	if err == nil {
		// Kyma's namespaces, marked as those of a cluster that tests may clear.
		_, err = standin.Put(ctx, c.Config(), 0)
	}
	if err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return c, nil
}

// image returns the image of a command of this repository, which it builds and pushes once.
func (c *cluster) image(t *testing.T, pkg string) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.images[pkg] == "" {
		image, err := c.Push(t.Context(), path.Base(pkg), pkg)
		if err != nil {
			t.Fatal(err)
		}
		c.images[pkg] = image
	}
	return c.images[pkg]
}

// Config is that of the administrator, without what the API server has to say about names that are
// Kyma's.
func (c *cluster) Config() *rest.Config {
	config := c.ControlPlane.Config()
	config.WarningHandler = rest.NoWarnings{}
	return config
}

// scriptsOf are the blocks of commands of a document, and the root of the repository, in which they
// run.
func scriptsOf(t *testing.T, document string) (root string, scripts []string) {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(text), "```bash\n")[1:] {
		script, _, _ := strings.Cut(block, "```")
		scripts = append(scripts, script)
	}
	return root, scripts
}
