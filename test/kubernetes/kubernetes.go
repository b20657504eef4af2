// Package kubernetes starts a real API server for a test, with the kinds of Kyma, Knative and
// Service Catalog, and reads the requests that it got from its audit log.
//
// A fake client lacks the garbage collector, finalizers, resource versions, RBAC and the audit log,
// which are what a migration can get wrong. Tests therefore run against the control plane that
// test/kubernetes/build builds from Go modules and starts on loopback. With
// EVENTMESH_TEST_KUBECONFIG set, they use that cluster instead; calls that need a cluster of their
// own then return ErrNoAudit, and the test is skipped. KUBECONFIG is ignored, because it often
// points to a cluster that is in use.
//
// With EVENTMESH_TEST_KUBERNETES=1.16, the API server and its controllers are of the version that
// Kyma 1.10 ran on, and the kinds have the form of that version. A test of a feature that it lacks
// is skipped with the reason that Lacks returns.
//
// # Pods
//
// Without more, nothing runs a pod. With Node, which needs root, everything does what it does in a
// cluster:
//
//	cluster, err := kubernetes.Start(ctx, kubernetes.Node())
//	image, err := cluster.Push(ctx, "trigger-sync", "./cmd/trigger-sync") // builds it; the name for a pod's spec
//	l, err := net.Listen("tcp", net.JoinHostPort(cluster.Host, "0"))        // a server of the test that pods reach
//
// A pod finds the API at its ClusterIP, Services by name, and nothing outside of this machine.
// Images are of the cluster's own registry: whatever is not pushed cannot be pulled. With Knative,
// Knative Eventing's images are in another one, and InstallKnative installs it. A test process that
// is killed leaves no container, mount, interface or firewall rule behind.
package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// userAgent is how the requests of this package appear in the audit log.
const userAgent = "eventmesh-controlplane"

// ControlPlane is a cluster, without nodes unless asked for one.
type ControlPlane struct {
	// Kubeconfig is the path of a file with one context: the administrator.
	Kubeconfig string
	// Dir holds the files of this control plane, the components' logs among them. Stop removes it.
	Dir string
	// AuditLog is the path of the audit log, empty on a cluster of somebody else.
	AuditLog string
	// Registry is where this machine pushes images to, and Host the address at which pods reach
	// what listens on this machine. Both are empty without a node.
	Registry, Host string
	// Minor is that of the Kubernetes that answers: 1.<Minor>.
	Minor int

	config    *rest.Config
	dynamic   dynamic.Interface
	discovery *discovery.DiscoveryClient
	http      *http.Client

	launcher *launcher
	// knative and formerKnative are the files of Knative's manifests, if they were asked for.
	knative, formerKnative string

	mu   sync.Mutex
	made []func(context.Context) error // deletes what User made
}

// Option changes what Start starts.
type Option func(*options)

type options struct {
	controllers                  string
	node, knative, formerKnative bool
	workloads                    bool
}

// Controllers chooses the controllers that run, in the notation of kube-controller-manager's
// --controllers. A test that writes the status of Deployments itself leaves out the controller that
// would overwrite it.
func Controllers(names ...string) Option {
	return func(o *options) { o.controllers = strings.Join(names, ",") }
}

// Workloads adds the controllers of volumes, of PodDisruptionBudgets and of autoscalers: claims are
// bound, and protected while a pod uses them. A cluster with a node has them.
func Workloads() Option {
	return func(o *options) { o.workloads = true }
}

// Start starts a control plane, or connects to the one that EVENTMESH_TEST_KUBECONFIG names. The
// context bounds the start, which builds Kubernetes if the cache does not have it (minutes, once);
// Stop ends the cluster, and so does the end of this process.
func Start(ctx context.Context, opts ...Option) (_ *ControlPlane, err error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	dir, err := os.MkdirTemp("", "eventmesh-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("cannot start control plane: %w", err)
	}
	c := &ControlPlane{Dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()

	if Foreign() {
		err = c.adopt(o)
	} else {
		err = c.launch(ctx, o)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start control plane: %w", err)
	}
	if err := c.connect(ctx); err != nil {
		return nil, fmt.Errorf("cannot start control plane: %w", err)
	}
	if !c.Own() {
		if err := c.refuseOthers(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// adopt uses the cluster of the caller's EVENTMESH_TEST_KUBECONFIG. The variable may name several
// files, with relative paths in them: programs under test get one file that holds everything.
func (c *ControlPlane) adopt(o options) error {
	if o.node {
		return ErrNoNode
	}
	// Not the default rules: those read KUBECONFIG and the file in the home.
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(os.Getenv(KubeconfigEnv))}
	raw, err := rules.Load()
	if err != nil {
		return fmt.Errorf("cannot load the files of %s: %w", KubeconfigEnv, err)
	}
	if err := clientcmdapi.MinifyConfig(raw); err != nil {
		return fmt.Errorf("cannot use the files of %s: %w", KubeconfigEnv, err)
	}
	if err := clientcmdapi.FlattenConfig(raw); err != nil {
		return fmt.Errorf("cannot use the files of %s: %w", KubeconfigEnv, err)
	}
	c.Kubeconfig = filepath.Join(c.Dir, "kubeconfig")
	return clientcmd.WriteToFile(*raw, c.Kubeconfig)
}

func (c *ControlPlane) connect(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	c.config = config
	own := c.Config()
	if c.http, err = rest.HTTPClientFor(own); err != nil {
		return err
	}
	own.UserAgent = userAgent
	if c.dynamic, err = dynamic.NewForConfig(own); err != nil {
		return err
	}
	if c.discovery, err = discovery.NewDiscoveryClientForConfig(own); err != nil {
		return err
	}
	answer, err := c.discovery.ServerVersionWithContext(ctx)
	if err != nil {
		return fmt.Errorf("cannot ask for the version: %w", err)
	}
	// Some providers add a plus sign.
	c.Minor, err = strconv.Atoi(strings.TrimRight(answer.Minor, "+"))
	if err != nil {
		return fmt.Errorf("cannot read the version %q: %w", answer.GitVersion, err)
	}
	return nil
}

// Lacks says that this Kubernetes is too old for something that came with 1.<since>, and is nil if
// it is not.
func (c *ControlPlane) Lacks(what string, since int) error {
	if c.Minor >= since {
		return nil
	}
	return fmt.Errorf("needs %s, which came with Kubernetes 1.%d: this one is 1.%d", what, since, c.Minor)
}

// Config returns a configuration of the administrator that no client-side limit slows down. It is
// the caller's own.
func (c *ControlPlane) Config() *rest.Config {
	return rest.CopyConfig(c.config)
}

// Own says whether this is a cluster of the test's own rather than one that
// EVENTMESH_TEST_KUBECONFIG names.
func (c *ControlPlane) Own() bool {
	return c.launcher != nil
}

// Stop ends the control plane and removes its files. On a cluster of somebody else it deletes the
// users it made and leaves the rest alone. With EVENTMESH_TEST_KEEP set the files stay, for people
// who want to read the logs.
func (c *ControlPlane) Stop() error {
	var errs []error
	if c.launcher != nil {
		c.launcher.stop()
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, remove := range c.made {
			if err := remove(ctx); err != nil {
				errs = append(errs, fmt.Errorf("cannot delete a test's user: %w", err))
			}
		}
		c.made = nil
	}
	if os.Getenv("EVENTMESH_TEST_KEEP") == "" {
		if err := os.RemoveAll(c.Dir); err != nil {
			errs = append(errs, fmt.Errorf("cannot remove the control plane's files: %w", err))
		}
	}
	return errors.Join(errs...)
}

// RestartControllers restarts the controller manager of an own cluster; its controllers work again
// a second or two after the return. InstallCRDs does it for the garbage collector, which otherwise
// learns of new kinds up to half a minute late. On another cluster it does nothing.
func (c *ControlPlane) RestartControllers(ctx context.Context) error {
	if c.launcher == nil {
		return nil
	}
	c.launcher.mu.Lock()
	defer c.launcher.mu.Unlock()
	if err := c.launcher.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return fmt.Errorf("cannot restart controllers: %w", err)
	}
	if _, err := c.launcher.ready(ctx); err != nil {
		return fmt.Errorf("cannot restart controllers: %w", err)
	}
	return nil
}

// launcher is a running "cluster up".
type launcher struct {
	binary string
	cmd    *exec.Cmd
	stdin  io.Closer
	// lines carries what the launcher says on stdout; closed when it ends.
	lines  chan []byte
	stderr tail
	exited chan struct{}

	mu sync.Mutex // one restart at a time
}

type announcement struct {
	Kubeconfig string `json:"kubeconfig"`
	AuditLog   string `json:"auditLog"`
	Server     string `json:"server"`
	Registry   string `json:"registry"`
	Host       string `json:"host"`
	Knative    string `json:"knative"`
	// FormerKnative is of the version before.
	FormerKnative string `json:"formerKnative"`
}

func (c *ControlPlane) launch(ctx context.Context, o options) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	binary, err := Program{
		Dir: filepath.Join(root, "test", "kubernetes", "build"), Package: ".", Env: []string{"GOFLAGS=", "GOWORK=off"},
	}.Build(ctx)
	if err != nil {
		return err
	}

	args := []string{"up", "--dir", c.Dir}
	if o.controllers != "" {
		args = append(args, "--controllers", o.controllers)
	}
	if o.workloads {
		args = append(args, "--workloads")
	}
	if o.node {
		args = append(args, "--node")
	}
	if o.knative {
		args = append(args, "--knative")
	}
	if o.formerKnative {
		args = append(args, "--former-knative")
	}
	l := &launcher{
		binary: binary,
		cmd:    exec.Command(binary, args...),
		lines:  make(chan []byte, 1),
		exited: make(chan struct{}),
	}
	// In a group of its own a Ctrl-C does not reach it: it ends when this process does, by the end
	// of its stdin.
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	l.cmd.Stderr = io.MultiWriter(os.Stderr, &l.stderr)
	stdin, err := l.cmd.StdinPipe()
	if err != nil {
		return err
	}
	l.stdin = stdin
	stdout, err := l.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := l.cmd.Start(); err != nil {
		return fmt.Errorf("cannot start test/kubernetes/build: %w", err)
	}
	c.launcher = l
	go func() {
		defer close(l.exited)
		defer close(l.lines)
		scanner := bufio.NewScanner(stdout)
		for scanner.Scan() {
			select {
			case l.lines <- bytes.Clone(scanner.Bytes()):
			default: // Nobody waits any more, and Stop must not wait for somebody to.
			}
		}
		_ = l.cmd.Wait()
	}()

	a, err := l.ready(ctx)
	if err != nil {
		return err
	}
	c.Kubeconfig, c.AuditLog = a.Kubeconfig, a.AuditLog
	c.Registry, c.Host, c.knative, c.formerKnative = a.Registry, a.Host, a.Knative, a.FormerKnative
	return nil
}

// ready waits for the launcher to say that the cluster is.
func (l *launcher) ready(ctx context.Context) (announcement, error) {
	var a announcement
	select {
	case line, ok := <-l.lines:
		if !ok {
			return a, fmt.Errorf("test/kubernetes/build ended: %s", l.stderr.String())
		}
		if err := json.Unmarshal(line, &a); err != nil {
			return a, fmt.Errorf("test/kubernetes/build said %q: %w", line, err)
		}
		return a, nil
	case <-ctx.Done():
		return a, fmt.Errorf("test/kubernetes/build is not ready: %w", ctx.Err())
	}
}

func (l *launcher) stop() {
	_ = l.stdin.Close()
	select {
	case <-l.exited:
	case <-time.After(15 * time.Second):
		// Its children die with it.
		_ = l.cmd.Process.Kill()
		<-l.exited
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const limit = 8 << 10
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - limit; over > 0 {
		t.buf = append([]byte(nil), t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}

// moduleRoot walks up from the working directory, which for a test is its package's, to the
// product's go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module github.com/kyma-project/eventmesh-migration\n")) {
			return dir, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("cannot find the repository: no go.mod of github.com/kyma-project/eventmesh-migration above the working directory")
		}
		dir = parent
	}
}
