// Command sandbox is a sample Kyma 1.10 cluster on this machine that stays up, to try
// eventmesh-migrate on. "make sandbox" runs it.
//
// The API server and its controllers are real, the controllers of Kyma and Knative are those of
// test/standin. A proxy in front of the API server answers for NATS Streaming, whose pod does not
// run, and injects faults of networks and API servers. Commands are read from stdin: see help. The
// end of stdin or a signal ends the sandbox and everything that it started. Its cluster is always
// its own: it ignores EVENTMESH_TEST_KUBECONFIG.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/samplecluster"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "bin/sandbox.kubeconfig", "`file` to write: the way to the cluster")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := os.Unsetenv(kubernetes.KubeconfigEnv)
	if err == nil {
		err = run(ctx, *kubeconfig, os.Stdin, os.Stdout)
	}
	interrupted := ctx.Err() != nil
	stop()
	if err != nil && !interrupted {
		fmt.Fprintln(os.Stderr, "sandbox: "+err.Error())
		os.Exit(1)
	}
}

// contextName is that of the kubeconfig's only context.
const contextName = "sandbox"

type sandbox struct {
	cluster samplecluster.Cluster
	proxy   *faultproxy.Proxy
	out     io.Writer
	// heal ends what is broken, in the order in which it was broken.
	heal []func(context.Context) error
	// natsDown: the monitoring port of NATS Streaming does not answer.
	natsDown atomic.Bool
}

func (s *sandbox) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// run starts the sandbox, obeys commands until there are no more, and ends everything.
func run(ctx context.Context, kubeconfig string, in io.Reader, out io.Writer) (err error) {
	s := &sandbox{out: out}
	if kubeconfig, err = filepath.Abs(kubeconfig); err != nil {
		return err
	}
	defer func() {
		s.say("The sandbox ends.")
		_ = os.Remove(kubeconfig) // it leads nowhere now
		if s.proxy != nil {
			s.proxy.Close()
		}
		err = errors.Join(err, s.cluster.Close())
	}()
	s.say("A sample Kyma 1.10 cluster starts on this machine. This takes some seconds.")
	began := time.Now()
	if err := s.start(ctx, kubeconfig); err != nil {
		return fmt.Errorf("cannot start the cluster: %w", err)
	}
	s.say("It is ready after %d seconds: Kubernetes 1.%d, %d Applications, %d Kyma Subscriptions.\n",
		int(time.Since(began).Seconds()), s.cluster.Minor, len(s.cluster.Sample), len(s.cluster.Subscriptions()))
	s.say(welcome, kubeconfig)

	for line := range lines(ctx, in) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		i := slices.IndexFunc(commands, func(c command) bool { return c.name == words[0] })
		switch {
		case words[0] == "quit":
			return nil
		case i < 0:
			s.say("Unknown command %q. The commands are listed by: help", words[0])
		default:
			if err := commands[i].do(s, ctx, words[1:]); err != nil && ctx.Err() == nil {
				s.say("Failed: %v", err)
			}
		}
	}
	return nil
}

const welcome = `In a second terminal:

  export KUBECONFIG=%s

Five things to try there:

  bin/eventmesh-migrate verify               # what is wrong on this cluster
  bin/eventmesh-migrate plan                 # what would be done; writes nothing
  bin/eventmesh-migrate run --phase pre      # build the new path beside the old one
  bin/eventmesh-migrate run --phase post     # after "switch" (below): remove the old path
  bin/eventmesh-migrate map --file events.html

In this terminal: switch, break WHAT, heal, help, quit. Ctrl-C ends the cluster.`

// lines of a reader, until it or the context ends.
func lines(ctx context.Context, in io.Reader) func(func(string) bool) {
	read := make(chan string)
	go func() {
		defer close(read)
		scanner := bufio.NewScanner(in)
		for scanner.Scan() {
			select {
			case read <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return func(yield func(string) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case line, ok := <-read:
				if !ok || !yield(line) {
					return
				}
			}
		}
	}
}

func (s *sandbox) start(ctx context.Context, kubeconfig string) error {
	err := s.cluster.Start(ctx, samplecluster.Options{
		UserAgent: "eventmesh-sandbox", Starting: standin.AdapterNotReadyFor(10 * time.Second), NATS: true,
	})
	if err != nil {
		return err
	}
	if s.proxy, err = faultproxy.Start(s.cluster.Admin); err != nil {
		return err
	}
	s.proxy.Use(s.nats)
	if err := os.MkdirAll(filepath.Dir(kubeconfig), 0o755); err != nil {
		return err
	}
	cfg := s.proxy.Config()
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{contextName: {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{contextName: {Token: cfg.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{contextName: {Cluster: contextName, AuthInfo: contextName}},
		CurrentContext: contextName,
	}, kubeconfig)
}

// command is what somebody types.
type command struct {
	name, args, what string
	do               func(*sandbox, context.Context, []string) error
}

var commands []command

func init() {
	commands = []command{
		{"switch", "", "upgrade application-connector: event-services post to the mesh", (*sandbox).switchOver},
		{"break", "WHAT [NAME]", "break something: the list is below", (*sandbox).breakIt},
		{"heal", "", "end everything that is broken", (*sandbox).healAll},
		{"help", "", "show this list", (*sandbox).help},
		{"quit", "", "end the sandbox, as Ctrl-C does", nil},
	}
}

func (s *sandbox) help(context.Context, []string) error {
	for _, c := range commands {
		s.say("  %-20s %s", strings.TrimSpace(c.name+" "+c.args), c.what)
	}
	s.say("\nWHAT is one of these. NAME chooses another object than the one in brackets.\n")
	for _, f := range faults {
		what := f.what
		if f.name != "" {
			what += " [" + f.name + "]"
		}
		s.say("  %-20s %s", f.kind, what)
	}
	return nil
}

func (s *sandbox) switchOver(ctx context.Context, _ []string) error {
	n, err := s.cluster.Switch(ctx)
	if err != nil {
		return err
	}
	s.say("application-connector is upgraded: the event-services of %d Applications post to the mesh.", n)
	s.say("Next, in the second terminal: bin/eventmesh-migrate run --phase post")
	return nil
}
