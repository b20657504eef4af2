// Command with runs a program beside a control plane of its own, for tests that cannot start one:
// those of other modules.
//
//	go run ./test/kubernetes/with VARIABLE PROGRAM [ARGUMENT...]
//
// The environment variable tells the program the path of a kubeconfig, of the administrator. The
// control plane ends with the program, whose exit code is that of this command. With
// EVENTMESH_TEST_KUBECONFIG set, it is that cluster instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "with:", err)
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (code int, err error) {
	if len(args) < 2 {
		return 2, errors.New("usage: go run ./test/kubernetes/with VARIABLE PROGRAM [ARGUMENT...]")
	}
	cluster, err := kubernetes.Start(ctx)
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopped := cluster.Stop(); stopped != nil {
			code, err = max(code, 1), errors.Join(err, stopped)
		}
	}()
	cmd := exec.CommandContext(ctx, args[1], args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), args[0]+"="+cluster.Kubeconfig)
	err = cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() > 0 {
		return ended.ExitCode(), nil // the program has said why
	}
	if err != nil {
		return 1, fmt.Errorf("cannot run %s: %w", args[1], err)
	}
	return 0, nil
}
