// Command cluster runs a real Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager,
// built from their Go modules. It exists because tests of a migration are worth what the API server below them is worth:
// garbage collection, finalizers, preconditions, RBAC and the audit log have to be the real ones, and neither Docker nor
// a download of binaries may be needed to get them.
//
//	cluster build [--only kube-apiserver,...]   build what is missing in the cache
//	cluster up --dir DIR [--controllers LIST]   build, start, print one line of JSON, stay in the foreground
//
// The line of JSON on stdout means "ready": {"kubeconfig":…, "auditLog":…, "server":…}. Everything else goes to stderr.
// The cluster ends with SIGTERM, SIGINT or the end of stdin, so that a parent that dies takes it down. SIGHUP restarts the
// controller manager alone, after which stdout gets the same line again.
//
// It touches nothing but DIR, the cache ($EVENTMESH_CACHE, else eventmesh-migration in the user's cache directory) and
// its own processes. DIR is kept: starting again with the same DIR continues with the same data.
//
// This directory is a module of its own, so that the hundreds of modules Kubernetes is made of stay out of the product's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

func main() {
	// Pdeathsig fires when the thread that forked ends, not when the process does. The main thread ends last, so
	// every child is started from it.
	runtime.LockOSThread()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: cluster build [--only COMPONENT,...] | cluster up --dir DIR [--controllers LIST]")

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet("cluster "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	switch args[0] {
	case "build":
		only := flags.String("only", strings.Join(controlPlane, ","), "the components to build")
		if err := parse(flags, args[1:]); err != nil {
			return err
		}
		_, err := build(ctx, strings.Split(*only, ","), stderr)
		return err
	case "up":
		var o upOptions
		flags.StringVar(&o.dir, "dir", "", "where data, keys, logs, kubeconfig and audit log go (required)")
		flags.StringVar(&o.controllers, "controllers", defaultControllers, "the controllers to run, as kube-controller-manager's --controllers")
		if err := parse(flags, args[1:]); err != nil {
			return err
		}
		if o.dir == "" {
			return fmt.Errorf("--dir is missing: %w", errUsage)
		}
		return up(ctx, o, stdin, stdout, stderr)
	}
	return fmt.Errorf("unknown command %q: %w", args[0], errUsage)
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", err, errUsage)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: %w", flags.Arg(0), errUsage)
	}
	return nil
}
