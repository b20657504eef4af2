// Command eventing-controller delivers events to the sinks of Subscriptions (eventing.kyma-project.io/v1alpha2).
//
//	eventing-controller --namespace=kyma-system
//
// # What it does
//
// It follows the ConfigMap eventing-backends, which the operator writes, and says in eventing-controller-state what it follows. For
// each Subscription it has one durable consumer in NATS, posts the events to the sink, and repeats what the sink refuses, for as long as it
// takes. On the mesh, it has a Trigger for each type, and posts the events that the mesh sends to /deliver/<namespace>/<name>. Of several
// processes, the one with the Lease does all that but the last, which each does.
//
// # What it never does
//
// It posts to nothing but Services in the namespace of the Subscription, and to the dead letter sink. It never changes the stream or the
// Broker, and deletes a consumer only when the Subscription is gone. On SIGTERM, it waits for sinks that work on an event, and gives the rest back.
//
// # Exit codes
//
//	0  ended by a signal
//	1  the Lease was lost, or the API server cannot be used
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
	"runtime/debug"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/controller"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	// Each event is garbage a moment later. Less work on that is worth the memory: it stays far below its limit.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
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
	o, level, err := parse(args, env, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "eventing-controller: %v\neventing-controller --help lists the flags\n", err)
		return exitUsage
	}
	log := newLogger(stderr, level)
	config, err := connection(env("KUBECONFIG"))
	if err == nil {
		err = controller.Run(ctx, config, o, log)
	}
	if err != nil {
		log.Error("ended", zap.Error(err))
		return exitFailed
	}
	return exitOK
}

// connection is the way to the API server: a kubeconfig, or that of the pod.
func connection(kubeconfig string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot find the API server: %w", err)
	}
	config.UserAgent = "eventing-controller eventmesh-migration"
	return config, nil
}

// newLogger writes JSON lines. Of lines that are alike, the first hundred a second and then each hundredth: a sink that is down must not
// fill a disk.
func newLogger(w io.Writer, level zapcore.Level) *zap.Logger {
	c := zap.NewProductionEncoderConfig()
	c.TimeKey, c.MessageKey = "time", "message"
	c.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	c.EncodeDuration = zapcore.SecondsDurationEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(c), zapcore.Lock(zapcore.AddSync(w)), level)
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Second, 100, 100))
}
