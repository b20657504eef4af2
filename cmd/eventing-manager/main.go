// Command eventing-manager is the eventing operator. Somebody applies an Eventing, and the operator
// installs what carries events, keeps it as it is wanted, and removes it again without losing an
// event.
//
//	eventing-manager --nats-image=registry/nats-server@sha256:... --publisher-image=... --controller-image=...
//
// # What it does
//
// It serves the oldest Eventing of the cluster. Everything is created in one namespace, with one
// prefix. Of several replicas, the one that holds the Lease acts. A killed operator goes on from
// what is in the cluster.
//
// # What it never does
//
// It deletes no volume and no stream that may hold an event, and changes no object that it did not
// create. It writes no Roles and no CustomResourceDefinitions.
//
// # Exit codes
//
//	0  ended by a signal
//	1  it cannot run, or another operator has taken the Lease over: start it again
//	2  usage
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/manager"
	"github.com/kyma-project/eventmesh-migration/internal/version"
)

// pullSecretVariable has the name of a Secret for pulling images. Kyma's lifecycle-manager adds it
// to the operator's pod when it moves images to another registry.
const pullSecretVariable = "SKR_IMG_PULL_SECRET"

func main() {
	program.Main(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr) })
}

// about begins the help.
const about = `eventing-manager installs what an Eventing object asks for, and keeps it so.

Apply an Eventing, then look at it:

  kubectl get eventings.operator.kyma-project.io -A

The conditions of an Eventing say what is wrong, and what to do. docs/eventing/README.md explains each.`

type options struct {
	manager    manager.Options
	kubeconfig string
	level      zapcore.Level
	version    bool
}

func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	o, err := parse(args, env, stderr)
	if err != nil {
		return program.Refused("eventing-manager", err, stderr)
	}
	if o.version {
		fmt.Fprintln(stdout, version.String())
		return program.OK
	}
	_, log := program.NewLoggers(stderr, o.level)
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	cfg, err := program.Cluster(rules, "eventing-manager/"+version.String())
	if err == nil {
		err = manager.Run(ctx, cfg, o.manager, log)
	}
	if err != nil {
		log.Error("ended", zap.Error(err))
		return program.Failed
	}
	return program.OK
}

func parse(args []string, env func(string) string, stderr io.Writer) (*options, error) {
	o := &options{}
	m := &o.manager
	namespace := env("POD_NAMESPACE")
	if namespace == "" {
		namespace = "kyma-system"
	}
	flags := program.Flags("eventing-manager", about)
	flags.StringVar(&m.Namespace, "namespace", namespace, "`namespace` of everything that is created; $POD_NAMESPACE by default")
	flags.StringVar(&m.Prefix, "resource-prefix", backend.DefaultPrefix, "`prefix` of the name of everything that is created")
	flags.StringVar(&m.NATSImage, "nats-image", env("NATS_IMAGE"), "`image` of nats-server, with its digest; $NATS_IMAGE by default (required)")
	flags.StringVar(&m.PublisherImage, "publisher-image", env("PUBLISHER_IMAGE"), "`image` of eventing-publisher-proxy, with its digest; $PUBLISHER_IMAGE by default (required)")
	flags.StringVar(&m.ControllerImage, "controller-image", env("CONTROLLER_IMAGE"), "`image` of eventing-controller, with its digest; $CONTROLLER_IMAGE by default (required)")
	flags.StringArrayVar(&m.PullSecrets, "image-pull-secret", nil, "`name` of a Secret for pulling these images, in addition to $"+pullSecretVariable+"; may be repeated")
	flags.StringVar(&m.NATSURL, "nats-url", "", "`URL` where the operator connects to NATS; its Service by default")
	flags.StringVar(&m.NATSClientURL, "nats-client-url", "", "`URL` where the publisher and the controller connect to NATS; its Service by default")
	flags.StringVar(&m.MetricsAddress, "metrics-bind-address", ":8080", "`address` of the metrics; 0 for none")
	flags.StringVar(&m.ProbeAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 for none")
	flags.StringVar(&m.PageAddress, "page-bind-address", "0", "`address` of the page for people, such as localhost:8086, which kubectl eventing page shows; 0 for none")
	flags.DurationVar(&m.DependencyTimeout, "dependency-timeout", 5*time.Minute, "how long a missing API is awaited before that is an error")
	flags.DurationVar(&m.BackendTimeout, "backend-timeout", 10*time.Minute, "how long a backend may take to start before that is an error")
	flags.DurationVar(&m.DrainDelay, "drain-delay", 6*time.Second, "how long a closed stream may still store what was published before; for NATS with several servers")
	flags.DurationVar(&m.DrainWatch, "drain-watch", 15*time.Second, "how long a closed stream has to stay empty after --drain-delay before it is removed; for NATS with several servers")
	flags.DurationVar(&m.MeshDelay, "mesh-delay", 5*time.Minute, "how long a Broker stays after the last event, if its Channels acknowledge events before they deliver them")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the cluster and the credentials; $KUBECONFIG, or the service account of the pod by default")
	flags.TextVar(&o.level, "log-level", zapcore.InfoLevel, "lowest `level` that is logged: debug, info, warn or error")
	flags.BoolVar(&o.version, "version", false, "print the version, and end")
	if err := program.Parse(flags, args, stderr); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.version {
		return o, nil
	}
	if secret := env(pullSecretVariable); secret != "" && !slices.Contains(m.PullSecrets, secret) {
		m.PullSecrets = append(m.PullSecrets, secret)
	}
	m.Version = version.String()
	return o, m.Validate()
}
