// Command cluster runs a real Kubernetes on one machine: a control plane on loopback and, where
// asked, a node that runs pods. etcd, kube-apiserver, kubelet and the others are built from their
// Go modules. It exists because tests of a migration are worth what the cluster below them is
// worth: garbage collection, finalizers, preconditions, RBAC, the audit log, pods that crash and
// Services that reach them have to be the real ones, and neither Docker nor a download of binaries
// may be needed to get them.
//
//	cluster build [--only kube-apiserver,...] [--kubernetes 1.16] [--node] [--knative] [--former-knative]   build what is missing in the cache
//	cluster up --dir DIR [--controllers LIST] [--workloads] [--kubernetes 1.16] [--node] [--knative] [--former-knative]   build, start, print one line of JSON, stay in the foreground
//	cluster check                                         say what keeps this machine from running a node, if anything
//	cluster push --registry ADDRESS --image NAME BINARY   put a static program into an image, print the image
//
// The line of JSON on stdout means "ready": {"kubeconfig":…, "auditLog":…, "server":…}; with --node
// also "registry", "host" and "node", with --knative also "knative". Everything else goes to
// stderr. The cluster ends with SIGTERM, SIGINT or the end of stdin, so that a parent that dies
// takes it down. SIGHUP restarts the controller manager alone, after which stdout gets the same
// line again.
//
// It changes nothing but DIR, the cache ($EVENTMESH_CACHE, else eventmesh-migration in the user's
// cache directory) and its own processes. DIR is kept: starting again with the same DIR continues
// with the same data (not with --node).
//
// With --kubernetes 1.16, or EVENTMESH_TEST_KUBERNETES=1.16, the API server and the controller
// manager are of the last Kubernetes that Kyma 1.10 ran on. Controllers keep the names that they
// have today. It has no node.
//
// # The node
//
// With --node everything runs in PID, mount, network and IPC namespaces of its own, below one
// process: when that ends, however it ends, the kernel takes containers, shims, mounts, bridges,
// nftables and routes away with it, and two clusters on one machine do not meet. A pair of virtual
// interfaces is the only way in: the API server and the registry listen at one end ("node"), and at
// the other ("host") pods reach whatever a process of the machine listens at. It needs root, and
// Debian's packages of containerd and its friends, which it installs where they are missing. Its
// registry is 127.0.0.1:5000 in the names of images, and is reached at "registry" to push. There is
// no way out: what the registry does not have cannot be pulled.
//
// With --knative the images of Knative Eventing, built once from its Go module, are in a second
// registry, and "knative" is the path of the manifests that name them. With --former-knative, those
// of the minor version before are in a third registry, and "formerKnative" is the path.
//
// This directory is a module of its own, so that the hundreds of modules Kubernetes is made of stay
// out of the product's. kubernetes-1.16.mod and .sum are a second one, of the old Kubernetes.
// addons.mod and addons.sum are a third one, of the tools that need others: "go get
// -modfile=addons.mod -tool …" changes it. It is not kept tidy: for that Go would fetch hundreds of
// modules more, which only tests of the tools need.
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
	// Pdeathsig fires when the thread that forked ends, not when the process does. The main thread
	// ends last, so every child is started from it.
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

var errUsage = errors.New("usage: cluster build [--only COMPONENT,...] [--kubernetes 1.16] [--node] [--knative] [--former-knative] | cluster up --dir DIR [--controllers LIST] [--workloads] [--kubernetes 1.16] [--node] [--knative] [--former-knative] | cluster check | cluster push --registry ADDRESS --image NAME BINARY")

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet("cluster "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	switch args[0] {
	case "build":
		only := flags.String("only", "", "the components to build, instead of those \"up\" needs")
		node := flags.Bool("node", false, "build and install what \"up --node\" needs")
		knative := flags.Bool("knative", false, "build what \"up --knative\" needs; implies --node")
		former := flags.Bool("former-knative", false, "build what \"up --former-knative\" needs; implies --knative")
		kubernetes := kubernetesFlag(flags)
		if err := parse(flags, args[1:], 0); err != nil {
			return err
		}
		if *only != "" {
			_, err := build(ctx, strings.Split(*only, ","), stderr)
			return err
		}
		_, err := prepare(ctx, upOptions{node: *node || *knative || *former, knative: *knative || *former, formerKnative: *former, kubernetes: *kubernetes}, stderr)
		return err
	case "up", cmdNodeUp:
		var o upOptions
		flags.StringVar(&o.dir, "dir", "", "where data, keys, logs, kubeconfig and audit log go (required)")
		flags.StringVar(&o.controllers, "controllers", "", "the controllers to run, as kube-controller-manager's --controllers (default: those the migration meets)")
		flags.BoolVar(&o.node, "node", false, "run a node too: pods then really run; needs root")
		flags.BoolVar(&o.knative, "knative", false, "have the images and manifests of Knative Eventing; implies --node")
		flags.BoolVar(&o.formerKnative, "former-knative", false, "have those of the minor version before as well; implies --knative")
		flags.BoolVar(&o.workloads, "workloads", false, "run the controllers of volumes, disruption budgets and autoscalers, too; --node does")
		kubernetes := kubernetesFlag(flags)
		if args[0] == cmdNodeUp {
			flags.Var(&o.link, "link", "the link to the machine")
		}
		if err := parse(flags, args[1:], 0); err != nil {
			return err
		}
		o.knative = o.knative || o.formerKnative
		o.node, o.kubernetes = o.node || o.knative, *kubernetes
		if o.dir == "" {
			return fmt.Errorf("--dir is missing: %w", errUsage)
		}
		if o.node && args[0] == "up" {
			return upNode(ctx, o, stdin, stdout, stderr)
		}
		return up(ctx, o, stdin, stdout, stderr)
	case "push":
		var o pushOptions
		flags.StringVar(&o.registry, "registry", "", "where to push to: \"registry\" of the cluster (required)")
		flags.StringVar(&o.image, "image", "", "the image's name, without registry; without a tag it gets one that tells its content (required)")
		if err := parse(flags, args[1:], 1); err != nil {
			return err
		}
		o.binary = flags.Arg(0)
		if o.registry == "" || o.image == "" || o.binary == "" {
			return fmt.Errorf("--registry, --image or BINARY is missing: %w", errUsage)
		}
		bin, err := build(ctx, []string{"crane"}, stderr)
		if err != nil {
			return err
		}
		image, err := push(ctx, bin, o)
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, image)
		return nil
	case "check":
		// For scripts: the reason is on stdout, so that they can do without a node and say why.
		if err := parse(flags, args[1:], 0); err != nil {
			return err
		}
		if err := checkNode(ctx, stderr); err != nil {
			fmt.Fprintln(stdout, err)
			return errors.New("this machine cannot run a node")
		}
		return nil
	case cmdNodeInit:
		return nodeInit(args[1:])
	}
	return fmt.Errorf("unknown command %q: %w", args[0], errUsage)
}

func kubernetesFlag(flags *flag.FlagSet) *string {
	return flags.String("kubernetes", os.Getenv(kubernetesEnv), "the release of API server and controller manager: 1.16, or nothing for the newest")
}

func parse(flags *flag.FlagSet, args []string, operands int) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", err, errUsage)
	}
	if flags.NArg() > operands {
		return fmt.Errorf("unexpected argument %q: %w", flags.Arg(operands), errUsage)
	}
	return nil
}
