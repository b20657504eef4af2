package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/test/eventingcluster"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

const (
	// namespace is that of the sinks.
	namespace = "shop"
	// mostLines of a command that was successful are shown.
	mostLines = 15
)

type options struct {
	// dir has the manifests and the kubeconfig.
	dir       string
	processes bool
	out       io.Writer
}

// show is what the steps share.
type show struct {
	options
	cluster *eventingcluster.Cluster
	// publisher is where clients of this machine reach the publisher.
	publisher string
	front     *http.Server
	sinks     *sinks
	sinkURL   string
	steps     int

	mu sync.Mutex // one line at a time
}

func (s *show) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// step says what is done, and how long it took.
func (s *show) step(ctx context.Context, what string, do func(context.Context) error) error {
	s.steps++
	s.say("\n%d. %s", s.steps, what)
	began := time.Now()
	if err := do(ctx); err != nil {
		return fmt.Errorf("step %d, %s: %w", s.steps, what, err)
	}
	s.say("   done in %s", seconds(time.Since(began)))
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// command is a command as somebody would type it, which is also what is run, in the root of the
// repository.
func (s *show) command(ctx context.Context, command string) (string, error) {
	s.say("   $ %s", command)
	out, err := s.shell(ctx, command)
	lines := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
	if err == nil && len(lines) > mostLines {
		s.say("     (%d lines)", len(lines)-1)
		lines = lines[len(lines)-1:]
	}
	for _, line := range lines {
		s.say("     %s", strings.TrimRight(line, "\r"))
	}
	return out, err
}

// commands runs one after the other.
func (s *show) commands(ctx context.Context, all ...string) error {
	for _, command := range all {
		if _, err := s.command(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

func (s *show) shell(ctx context.Context, command string) (string, error) {
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir = root
	// kubectl stores what it discovers in the home directory.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig(), "HOME="+s.cluster.Dir)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w", command, err)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}
	return string(out), err
}

func (s *show) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// file is the path of a manifest as it is in a command: short, if it is below the directory in
// which commands are run.
func (s *show) file(name string) string {
	path := filepath.Join(s.dir, name)
	if root, err := kubernetes.ModuleRoot(); err == nil {
		if short, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(short) {
			return short
		}
	}
	return path
}

func (s *show) write(name, text string) error {
	return os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600)
}

// needs says which program the commands lack.
func needs() error {
	for _, program := range []struct{ name, pack string }{{"kubectl", "kubernetes-client"}, {"curl", "curl"}} {
		if _, err := exec.LookPath(program.name); err != nil {
			return fmt.Errorf("%s is not installed, and the steps need it. Install it (Debian: apt-get install %s)", program.name, program.pack)
		}
	}
	return nil
}

// machine says what the pods are, and why.
func (s *show) machine(ctx context.Context) error {
	if err := needs(); err != nil {
		return err
	}
	if s.processes {
		s.say("The programs run as processes, without a node. NATS is the only backend: the switch needs a node.")
		return nil
	}
	why, err := noNode(ctx)
	if err != nil {
		return err
	}
	if why != "" {
		s.processes = true
		s.say("This machine cannot run a node, so the programs run as processes and there is no switch: %s", why)
		return nil
	}
	s.say("The cluster has a node of its own on this machine. If \"make node\" did not build it before, this takes about 15 minutes, once.")
	return nil
}

// start starts the cluster, and the way of clients and events into it.
func (s *show) start(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	if s.processes {
		s.cluster, err = eventingcluster.StartProcesses(ctx)
	} else {
		s.cluster, err = s.node(ctx)
	}
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(s.cluster.Kubeconfig)
	if err == nil {
		err = s.write("kubeconfig", string(raw))
	}
	if err == nil {
		err = s.write("eventing-manager.yaml", s.cluster.Manifest)
	}
	if err != nil {
		return err
	}
	var objects []any
	if s.sinkURL, objects, err = s.cluster.Sink(ctx, namespace, "sinks", s.sinks); err != nil {
		return err
	}
	var text strings.Builder
	for _, object := range objects {
		raw, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		text.WriteString("---\n" + string(raw))
	}
	if err := s.write("sinks.yaml", text.String()); err != nil {
		return err
	}
	return s.open()
}

// node starts a cluster with a node. The images are built while Knative Eventing is installed.
func (s *show) node(ctx context.Context) (*eventingcluster.Cluster, error) {
	c, err := eventingcluster.StartNode(ctx, kubernetes.Knative())
	if err != nil {
		return nil, err
	}
	began := time.Now()
	s.say("   Kubernetes 1.%d runs. Knative Eventing is installed, and the images of eventing are built.", c.Minor)
	var images, knative error
	var both sync.WaitGroup
	both.Go(func() {
		images = c.Images(ctx)
		s.say("   The images are built after %s.", seconds(time.Since(began)))
	})
	both.Go(func() {
		knative = c.Knative(ctx)
		s.say("   Knative Eventing is installed after %s.", seconds(time.Since(began)))
	})
	both.Wait()
	if err := errors.Join(images, knative); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// open lets clients of this machine reach the publisher, whichever pods it has.
func (s *show) open() error {
	to, through, err := s.cluster.Publisher()
	if err != nil {
		return err
	}
	target, err := url.Parse(to)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	s.front = &http.Server{
		Handler:           &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: through},
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = s.front.Serve(l) }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	s.publisher = "http://localhost:" + port
	return err
}

// close ends the cluster. It is due after a Ctrl-C, too.
func (s *show) close() error {
	var errs []error
	if s.front != nil {
		_ = s.front.Close()
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Close())
	}
	if err := os.Remove(s.kubeconfig()); err != nil && !errors.Is(err, fs.ErrNotExist) { // it leads nowhere now
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// explain shows the state of the cluster after a step that failed.
func (s *show) explain(ctx context.Context) {
	if s.cluster == nil || ctx.Err() != nil {
		return
	}
	s.say("\nThe step failed. This is the state of the cluster:")
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, command := range []string{
		"kubectl get pods --all-namespaces", "kubectl -n " + eventingcluster.Namespace + " logs --tail=20 deployment/eventing-manager", "kubectl -n " + eventingcluster.Namespace + " describe eventings.operator.kyma-project.io",
		"kubectl -n " + namespace + " describe subscriptions.eventing.kyma-project.io",
	} {
		out, err := s.shell(limited, command)
		s.say("   $ %s\n%s", command, out)
		if err != nil {
			s.say("     %v", err)
		}
	}
}
