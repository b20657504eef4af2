// Command event-service serves the legacy event API of one Application on the
// event mesh: clients still post to /{application}/v1/events, and the
// Application's HTTPSource adapter gets CloudEvents 1.0.
//
//	event-service --eventMeshURL=http://shop.kyma-integration --sourceId=shop
//
// # What it does
//
// It replaces Kyma's event-service, with the same flags, port, answers
// (docs/migration/event-service.md has them all) and, in the chart, names. Probes and
// metrics have a port of their own. On SIGTERM it still accepts requests for
// --shutdownDelay, answers every connection that it has accepted, and ends.
//
// # What it never does
//
// It stores no event: 200 means that the adapter has accepted it, anything else that
// the client must send it again. It writes nothing to the cluster, and reads
// Triggers only when a client asks for the subscribed events. Without a cluster,
// only that answer is missing.
//
// # Exit codes
//
//	0  ended by a signal, and every request that it had read is answered
//	1  the port is not available, or requests were not answered
//	2  usage
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/subscribed"
	"github.com/kyma-project/eventmesh-migration/internal/tracing/otlp"
)

func main() {
	program.Main(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Getenv, os.Stderr) })
}

func run(ctx context.Context, args []string, env func(string) string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		return program.Refused("event-service", err, stderr)
	}
	log, requests := program.NewLoggers(stderr, o.logLevel)
	for _, warning := range o.warnings {
		log.Warn(warning)
	}
	served := o.server
	if served.Tracer, err = otlp.Start(ctx, o.otlpEndpoint, "event-service", log); err != nil {
		fmt.Fprintf(stderr, "event-service: %v\n", err)
		return program.Usage
	}
	defer served.Tracer.Stop()
	served.Subscriptions = subscriptions(env("KUBECONFIG"), o.server.RequestTimeout, log)
	server, err := eventservice.New(served, log, requests)
	if err != nil {
		fmt.Fprintf(stderr, "event-service: %v\n", err)
		return program.Usage
	}
	err = server.Listen(ctx, o.externalAPIPort, o.metricsPort, zap.String("eventMeshURL", served.MeshURL), zap.String("sourceId", served.SourceID), zap.Strings("ignored", o.ignored))
	if err != nil {
		log.Error("ended", zap.Error(err))
		return program.Failed
	}
	return program.OK
}

// subscriptions finds the cluster. Without one, events are still accepted.
func subscriptions(kubeconfig string, timeout time.Duration, log *zap.Logger) eventservice.Subscriptions {
	cfg, err := program.Cluster(&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, "event-service eventmesh-migration")
	if err != nil {
		log.Warn("no kubeconfig: GET /subscribed will fail", zap.Error(err))
		return nil
	}
	triggers, err := subscribed.New(cfg, timeout)
	if err != nil {
		log.Warn("cannot create a client for the cluster: GET /subscribed will fail", zap.Error(err))
		return nil
	}
	return triggers
}
