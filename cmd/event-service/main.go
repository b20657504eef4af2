// Command event-service serves the legacy event API of one Application on the
// event mesh: clients still post to /{application}/v1/events, and the
// Application's HTTPSource adapter gets CloudEvents 1.0.
//
//	event-service --eventMeshURL=http://shop.kyma-integration --sourceId=shop
//
// # What it does
//
// It replaces Kyma's event-service, with the same flags, port, answers
// (docs/event-service.md has them all) and, in the chart, names. Probes and
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
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/subscribed"
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
		fmt.Fprintf(stderr, "event-service: %v\nevent-service --help lists the flags\n", err)
		return exitUsage
	}
	log, requests := newLoggers(stderr, o.logLevel)
	served := o.server
	served.Subscriptions = subscriptions(env("KUBECONFIG"), o.server.RequestTimeout, log)
	server, err := eventservice.New(served, log, requests)
	if err != nil {
		fmt.Fprintf(stderr, "event-service: %v\n", err)
		return exitUsage
	}
	if err := serve(ctx, o, server, log); err != nil {
		log.Error("ended", zap.Error(err))
		return exitFailed
	}
	return exitOK
}

func serve(ctx context.Context, o *options, server *eventservice.Server, log *zap.Logger) error {
	var config net.ListenConfig
	api, err := config.Listen(ctx, "tcp", ":"+strconv.Itoa(o.externalAPIPort))
	if err != nil {
		return fmt.Errorf("cannot listen for clients: %w", err)
	}
	if o.metricsPort >= 0 {
		l, err := config.Listen(ctx, "tcp", ":"+strconv.Itoa(o.metricsPort))
		if err != nil {
			_ = api.Close()
			return fmt.Errorf("cannot listen for probes and Prometheus: %w", err)
		}
		// It runs until the end, because it reports the end, too.
		internal, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		go func() {
			if err := server.ServeInternal(internal, l); err != nil {
				log.Warn("metrics server stopped: no metrics, and no answers to probes", zap.Error(err))
			}
		}()
		log.Info("serving metrics", zap.String("address", l.Addr().String()))
	}
	log.Info("serving", zap.String("address", api.Addr().String()), zap.String("eventMeshURL", o.server.MeshURL),
		zap.String("sourceId", o.server.SourceID), zap.Strings("ignored", o.ignored))
	return server.Serve(ctx, api)
}

// subscriptions finds the cluster. Without one, events are still accepted.
func subscriptions(kubeconfig string, timeout time.Duration, log *zap.Logger) eventservice.Subscriptions {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		log.Warn("no kubeconfig: GET /subscribed will fail", zap.Error(err))
		return nil
	}
	cfg.UserAgent = "event-service eventmesh-migration"
	triggers, err := subscribed.New(cfg, timeout)
	if err != nil {
		log.Warn("cannot create a client for the cluster: GET /subscribed will fail", zap.Error(err))
		return nil
	}
	return triggers
}

// newLoggers write JSON lines. Of lines that are alike, the first writes a hundred a
// second and then each hundredth: an adapter that is down must not fill a disk. The
// second writes all, for --requestLogging.
func newLoggers(w io.Writer, level zapcore.Level) (log, requests *zap.Logger) {
	cfg := zap.NewProductionEncoderConfig()
	cfg.TimeKey, cfg.MessageKey = "time", "message"
	cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	cfg.EncodeDuration = zapcore.SecondsDurationEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(cfg), zapcore.Lock(zapcore.AddSync(w)), level)
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Second, 100, 100)), zap.New(core)
}
