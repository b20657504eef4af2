// Command eventing shows the eventing operator, on this machine and nothing but this machine. "make
// eventing" runs it.
//
// It installs the operator on a cluster of its own, with kubectl commands that it prints, and
// publishes events. It then changes the backend to Knative Eventing and back while events are sent,
// and counts them. In the end it removes everything. It checks what it shows, and fails if anything
// is different.
//
// With -up the cluster stays until Ctrl-C, to try it ("make eventing-up"). With -stop it ends what
// -up has left ("make stop").
//
// A machine that cannot run a node runs the same with processes in the place of pods, without the
// switch: it has no Knative Eventing. The API server, NATS and the programs of eventing are real in
// both. It ignores EVENTMESH_TEST_KUBECONFIG.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

func main() {
	var o options
	up := flag.Bool("up", false, "let the cluster stay until Ctrl-C")
	stop := flag.Bool("stop", false, "end what -up has left, also after a crash")
	flag.StringVar(&o.dir, "dir", "bin/eventing", "`directory` of the manifests and of the kubeconfig")
	flag.BoolVar(&o.processes, "processes", false, "run processes in the place of pods, also on a machine that can run a node")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o.out = os.Stdout
	err := os.Unsetenv(kubernetes.KubeconfigEnv)
	if err == nil {
		o.dir, err = filepath.Abs(o.dir)
	}
	switch {
	case err != nil:
	case *stop:
		err = end(ctx, o)
	case *up:
		err = stay(ctx, o)
	default:
		err = tell(ctx, o)
	}
	interrupted := ctx.Err() != nil
	cancel()
	switch {
	case interrupted && *up && err == nil:
		fmt.Println("\nThe cluster is stopped, and its files are removed.")
	case interrupted && !*up && !*stop:
		fmt.Fprintln(os.Stderr, "\neventing: interrupted, and cleaned up")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "\neventing: "+err.Error())
		os.Exit(1)
	}
}

// noNode says why this machine cannot run a node. "" means that it can.
func noNode(ctx context.Context) (string, error) {
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		return "", err
	}
	check := exec.CommandContext(ctx, "go", "-C", filepath.Join(root, "test", "kubernetes", "build"), "run", ".", "check")
	check.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	why, err := check.Output()
	if err == nil {
		return "", nil
	}
	if reason := strings.Join(strings.Fields(string(why)), " "); reason != "" {
		return reason, nil
	}
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("cannot check whether this machine can run a node: %w\n%s", err, failed.Stderr)
	}
	return "", err
}
