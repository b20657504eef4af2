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
	"context"
	"io"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/controller"
)

func main() {
	// Each event is garbage a moment later. Less work on that is worth the memory: it stays far
	// below its limit.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	program.Main(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Getenv, os.Stderr) })
}

// eventBytes is what this process may hold of events: half of what Go uses before it collects
// garbage all the time, which is four fifths of the limit of the container, unless GOMEMLIMIT says
// something else.
func eventBytes() int64 {
	const usual = 410 << 20 // of the chart's limit
	// Without a container there is no limit, and the usual one is as good as another.
	_, _ = memlimit.Set(memlimit.WithRatio(0.8), memlimit.WithProvider(memlimit.FromCgroup))
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = usual
	}
	return limit / 2
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
