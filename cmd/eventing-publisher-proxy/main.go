// Command eventing-publisher-proxy takes the events of clients, and stores them in the stream of NATS or posts them to the Broker of the mesh.
//
//	eventing-publisher-proxy --namespace=kyma-system --nats-seed-file=/etc/nats/seed --nats-ca-file=/etc/nats/ca.crt
//	eventing-publisher-proxy --namespace=kyma-system --backend=EventMesh
//
// # What it does
//
// It takes one CloudEvent with POST /publish, and the events of the legacy endpoint of every application. An event is answered with 2xx when
// JetStream has stored it, or knows it already; on the mesh, when every sink has taken it. Everything else says when to send the event again. Limits, answers and the end on SIGTERM
// are those of event-service (docs/event-service.md).
//
// It follows the ConfigMap <prefix>-backends: where its backend is, and whether events may be sent there now. It reads the files with the seed
// and the authority again when they change.
//
// # What it never does
//
// It keeps no event, and sends none later or to another backend. It writes nothing to the cluster. It logs no content of an event, and no
// secret.
//
// # Exit codes
//
//	0  ended by a signal, and every request that it had read is answered
//	1  a port, the cluster or the files are not available, or requests were not answered
//	2  usage
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/publisher"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stderr)
	stop()
	os.Exit(code)
}

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func run(ctx context.Context, args []string, env func(string) string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "eventing-publisher-proxy: %v\neventing-publisher-proxy --help lists the flags\n", err)
		return exitUsage
	}
	log, requests := eventservice.NewLoggers(stderr, o.logLevel)
	if err := serve(ctx, o, env("KUBECONFIG"), log, requests); err != nil {
		log.Error("ended", zap.Error(err))
		return exitFailed
	}
	return exitOK
}

func serve(ctx context.Context, o *options, kubeconfig string, log, requests *zap.Logger) error {
	cfg, err := cluster(kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot find the cluster: %w", err)
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot create a client for the cluster: %w", err)
	}
	served := o.server
	var sender *publisher.Publisher
	if o.backend == operatorv1alpha1.EventMesh {
		sender, served.SendTimeout = publisher.NewMesh(served.MaxInFlight, log), publisher.MeshTimeout
	} else {
		sender = publisher.NewNATS(o.seedFile, o.caFile, log)
	}
	defer sender.Close()
	served.Sender = sender
	if served.Subscriptions, err = publisher.Subscriptions(cfg, served.RequestTimeout); err != nil {
		return fmt.Errorf("cannot create a client for Subscriptions: %w", err)
	}
	server, err := eventservice.New(served, log, requests)
	if err != nil {
		return err
	}
	// Requests are answered with what was read last, also after the signal to end.
	following, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	listening, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	go func() {
		if err := sender.Follow(following, client, o.namespace, backend.Names(o.prefix).Backends()); err != nil {
			failed <- err
			stop()
		}
	}()
	err = server.Listen(listening, o.port, o.metricsPort, zap.String("backend", string(o.backend)))
	select {
	case broken := <-failed:
		return errors.Join(broken, err)
	default:
		return err
	}
}

// cluster is that of a kubeconfig, else that of the pod.
func cluster(kubeconfig string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "eventing-publisher-proxy"
	return cfg, nil
}
