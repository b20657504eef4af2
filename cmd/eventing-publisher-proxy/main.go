// Command eventing-publisher-proxy takes the events of clients, and stores them in the stream of
// NATS or posts them to the Broker of the mesh.
//
//	eventing-publisher-proxy --namespace=kyma-system --nats-seed-file=/etc/nats/seed --nats-ca-file=/etc/nats/ca.crt
//	eventing-publisher-proxy --namespace=kyma-system --backend=EventMesh
//
// # What it does
//
// It takes one CloudEvent with POST /publish, and the events of the legacy endpoint of every
// application. An event is answered with 2xx when JetStream has stored it, or knows it already; on
// the mesh, when every sink has taken it. Everything else says when to send the event again.
// Limits, answers and the end on SIGTERM are those of event-service
// (docs/migration/event-service.md).
//
// It follows the ConfigMap <prefix>-backends: where its backend is, and whether events may be sent
// there now. It reads the files with the seed and the authority again when they change.
//
// # What it never does
//
// It keeps no event, and sends none later or to another backend. It writes nothing to the cluster.
// It logs no content of an event, and no secret.
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
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/publisher"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/tracing/otlp"
)

func main() {
	program.Main(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Getenv, os.Stderr) })
}

func run(ctx context.Context, args []string, env func(string) string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		return program.Refused("eventing-publisher-proxy", err, stderr)
	}
	program.Memory()
	log, requests := program.NewLoggers(stderr, o.logLevel)
	if err := serve(ctx, o, env("KUBECONFIG"), log, requests); err != nil {
		log.Error("ended", zap.Error(err))
		return program.Failed
	}
	return program.OK
}

func serve(ctx context.Context, o *options, kubeconfig string, log, requests *zap.Logger) error {
	cfg, err := program.Cluster(&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, "eventing-publisher-proxy")
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot create a client for the cluster: %w", err)
	}
	served := o.server
	if served.Tracer, err = otlp.Start(ctx, o.otlpEndpoint, "eventing-publisher-proxy", log); err != nil {
		return err
	}
	defer served.Tracer.Stop()
	var sender *publisher.Publisher
	if o.backend == operatorv1alpha1.EventMesh {
		sender, served.SendTimeout = publisher.NewMesh(served.MaxInFlight, log), backend.MeshTimeout
	} else {
		sender, served.SendTimeout = publisher.NewNATS(o.seedFile, o.caFile, log), publisher.StoreTimeout
	}
	defer sender.Close()
	sender.Tracer = served.Tracer
	served.Sender = sender
	if served.Subscriptions, err = sender.Subscriptions(cfg, served.RequestTimeout); err != nil {
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
