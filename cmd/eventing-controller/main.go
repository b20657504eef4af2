// Command eventing-controller delivers events to the sinks of Subscriptions
// (eventing.kyma-project.io/v1alpha2).
//
//	eventing-controller --namespace=kyma-system
//
// # What it does
//
// It follows the ConfigMap eventing-backends, which the operator writes, and says in
// eventing-controller-state what it follows. For each Subscription it has one durable consumer in
// NATS, posts the events to the sink, and repeats what the sink refuses, for as long as it takes.
// On the mesh, it has one Trigger for all events, and posts those that the mesh sends to /events to
// each sink that wants them. Of several processes, the one with the Lease writes consumers, the
// Trigger and statuses. Each delivers, and says in eventing-controller-roster which Subscriptions
// it knows.
//
// # What it never does
//
// It posts to nothing but Services in the namespace of the Subscription, and to the dead letter
// sink. It never changes the stream or the Broker, and deletes a consumer only when the
// Subscription is gone. On SIGTERM, it waits for sinks that work on an event, and gives the rest
// back.
//
// # Exit codes
//
//	0  ended by a signal
//	1  the Lease was lost, or the API server cannot be used
//	2  usage
package main

import (
	"cmp"
	"context"
	"io"
	"os"

	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/controller"
)

func main() {
	program.Main(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Getenv, os.Stderr) })
}

// eventBytes is what this process may hold of events: half of what Go uses before it collects
// garbage all the time. Without a limit, that of the chart is as good as another.
func eventBytes() int64 {
	const usual = 410 << 20
	return cmp.Or(program.Memory(), usual) / 2
}

func run(ctx context.Context, args []string, env func(string) string, stderr io.Writer) int {
	o, level, err := parse(args, env, stderr)
	if err != nil {
		return program.Refused("eventing-controller", err, stderr)
	}
	log, _ := program.NewLoggers(stderr, level)
	o.EventBytes = eventBytes()
	config, err := program.Cluster(&clientcmd.ClientConfigLoadingRules{ExplicitPath: env("KUBECONFIG")}, "eventing-controller eventmesh-migration")
	if err == nil {
		err = controller.Run(ctx, config, o, log)
	}
	if err != nil {
		log.Error("ended", zap.Error(err))
		return program.Failed
	}
	return program.OK
}
