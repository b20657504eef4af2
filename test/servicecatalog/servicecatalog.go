// Package servicecatalog runs the real Service Catalog (v0.3.1: controller manager and webhook
// server) as processes beside a control plane of test/kubernetes. A stand-in would implement only
// the rules that we already know. A migration that deletes ServiceInstances has to be tested
// against all of them: what the webhooks refuse and overwrite, when deletions cascade, and what is
// retried or never repeated.
//
// Brokers are not part of it: see test/standin for application-broker.
package servicecatalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	testprocess "github.com/kyma-project/eventmesh-migration/test/process"
)

// ErrNotOwn says that the cluster is somebody else's (EVENTMESH_TEST_KUBECONFIG), whose API server
// cannot ask webhooks on this machine: a test is to skip.
var ErrNotOwn = errors.New("service catalog can only run beside a control plane of the test's own")

// Options of Start.
type Options struct {
	// CascadingDeletion lets the deletion of a ServiceInstance delete its bindings, as in Kyma;
	// off, they block it, as in the chart of Service Catalog.
	CascadingDeletion bool
	// QPS is the client limit of the controller manager; 0: as shipped, about 5 requests a second.
	QPS float32
}

// Catalog is a running Service Catalog.
type Catalog struct {
	cp          *kubernetes.ControlPlane
	client      clientset.Interface
	dynamic     dynamic.Interface
	binary      string
	certificate []byte
	certDir     string

	mu                  sync.Mutex
	opts                Options
	controller, webhook *process
	// crashes is how often the controller manager ended unasked.
	crashes int
}

// Start builds Service Catalog, if the cache does not have it (a minute and a half, once), and
// starts it; the kinds must be installed. It returns when the webhooks are asked and the
// controllers have read everything. Stop ends it.
func Start(ctx context.Context, cp *kubernetes.ControlPlane, opts Options) (_ *Catalog, err error) {
	if !cp.Own() {
		return nil, ErrNotOwn
	}
	c := &Catalog{cp: cp, opts: opts}
	if c.client, err = clientset.NewForConfig(cp.Config()); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfig(cp.Config()); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	if c.binary, err = build(ctx); err != nil {
		return nil, err
	}
	if c.certDir, err = os.MkdirTemp(cp.Dir, "service-catalog-"); err != nil {
		return nil, fmt.Errorf("cannot start Service Catalog: %w", err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	c.certificate = certificate
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(c.certDir, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("cannot write the certificate: %w", err)
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := c.StartWebhook(ctx); err != nil {
		return nil, err
	}
	return c, c.StartController(ctx)
}

// build returns the path of the binary.
func build(ctx context.Context) (string, error) {
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "test", "servicecatalog", "build")
	if err := kubernetes.DependOn(dir, filepath.Join(dir, "server")); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "-C", dir, "run", ".", "build")
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("cannot build Service Catalog: %w\n%s", err, &stderr)
	}
	return strings.TrimSpace(stdout.String()), nil
}

// Stop ends both processes and removes the webhooks.
func (c *Catalog) Stop() error {
	c.KillController()
	c.KillWebhook()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(c.unregister(ctx), os.RemoveAll(c.certDir))
}

// KillController is kill -9 of the controller manager. Killed twice, it is as dead.
func (c *Catalog) KillController() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controller.kill()
	c.controller = nil
}

// KillWebhook is kill -9 of the webhook server: all writes to kinds of Service Catalog are refused
// from now on.
func (c *Catalog) KillWebhook() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.webhook.kill()
	c.webhook = nil
}

// StartController starts the controller manager again, killing the one that runs. It returns when
// it has read everything. Should it crash, it is started again, as a kubelet would: version 0.3.1
// does crash, when an instance becomes ready that has a binding which is not and has no
// annotations.
func (c *Catalog) StartController(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controller.kill()
	if err := c.startController(); err != nil {
		return err
	}
	return c.controller.awaitReady(ctx)
}

func (c *Catalog) startController() error {
	p, err := start(c.binary, c.cp.Dir, "controller-manager", "--kubeconfig="+c.cp.Kubeconfig,
		fmt.Sprintf("--feature-gates=CascadingDeletion=%t", c.opts.CascadingDeletion), fmt.Sprintf("--qps=%g", c.opts.QPS))
	if err != nil {
		c.controller = nil
		return err
	}
	c.controller = p
	go func() {
		<-p.exited
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.controller == p {
			c.crashes++
			// A test that waits for something will miss it if this fails, and finds why in the log.
			_ = c.startController()
		}
	}()
	return nil
}

// Crashes is how often the controller manager ended unasked, and was started again.
func (c *Catalog) Crashes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.crashes
}

// SetCascadingDeletion switches the feature gate, for which the controller manager has to be
// started again.
func (c *Catalog) SetCascadingDeletion(ctx context.Context, on bool) error {
	c.mu.Lock()
	running := c.controller != nil && c.opts.CascadingDeletion == on
	c.opts.CascadingDeletion = on
	c.mu.Unlock()
	if running {
		return nil
	}
	return c.StartController(ctx)
}

// portAttempts is how often somebody else may be quicker to take a free port.
const portAttempts = 5

// StartWebhook starts the webhook server again, killing the one that runs. It returns when the API
// server asks it.
func (c *Catalog) StartWebhook(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.webhook.kill()
	for attempt := 1; ; attempt++ {
		ports, err := testprocess.FreePorts(1)
		if err != nil {
			return err
		}
		port := ports[0]
		c.webhook, err = start(c.binary, c.cp.Dir, "webhook", "--kubeconfig="+c.cp.Kubeconfig, fmt.Sprintf("--port=%d", port), "--cert-dir="+c.certDir)
		if err != nil {
			return err
		}
		if err := c.register(ctx, fmt.Sprintf("https://127.0.0.1:%d", port)); err != nil {
			return err
		}
		err = c.awaitVerdict(ctx)
		if err == nil || attempt == portAttempts || ctx.Err() != nil {
			return err
		}
	}
}

// awaitVerdict asks the API server to create, as a dry run, what only the webhook server refuses,
// until it does. What an API server knows of webhooks cannot be watched.
func (c *Catalog) awaitVerdict(ctx context.Context) error {
	instances := schema.GroupVersionResource{Group: "servicecatalog.k8s.io", Version: "v1beta1", Resource: "serviceinstances"}
	planless := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": instances.GroupVersion().String(), "kind": "ServiceInstance",
		"metadata": map[string]any{"generateName": "eventmesh-probe-"}, "spec": map[string]any{},
	}}
	for {
		_, err := c.dynamic.Resource(instances).Namespace("default").Create(ctx, planless, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && strings.Contains(err.Error(), "denied the request") {
			return nil
		}
		select {
		case <-c.webhook.exited:
			return c.webhook.died()
		case <-ctx.Done():
			return fmt.Errorf("the webhooks of Service Catalog are not asked: %w (last: %w)", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
