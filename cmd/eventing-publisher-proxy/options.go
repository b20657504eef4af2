package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/tracing/otlp"
)

// options are the command line's.
type options struct {
	server            eventservice.Options
	backend           operatorv1alpha1.BackendType
	namespace, prefix string
	seedFile, caFile  string
	otlpEndpoint      string
	port, metricsPort int
	logLevel          zapcore.Level
}

// maxRequestSize is the largest event that NATS takes as the chart configures it.
const maxRequestSize = 1 << 20

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{server: eventservice.Options{Routes: eventservice.All}}
	flags := program.Flags("eventing-publisher-proxy", "eventing-publisher-proxy takes events, and stores them in NATS or posts them to the mesh.")
	sendTo := flags.String("backend", string(operatorv1alpha1.NATS), "the `backend` that events are sent to: "+operatorv1alpha1.BackendNames())
	flags.StringVar(&o.namespace, "namespace", "", "`namespace` of the ConfigMap with the backends; required")
	flags.StringVar(&o.prefix, "resource-prefix", backend.DefaultPrefix, "`prefix` of the names of the operator's objects")
	flags.StringVar(&o.seedFile, "nats-seed-file", "", "`file` with the seed of the NATS user; required for NATS, read again when it changes")
	flags.StringVar(&o.caFile, "nats-ca-file", "", "`file` with the authorities of NATS's certificates, in PEM; required for NATS, read again when it changes")
	flags.IntVar(&o.port, "port", 8080, "`port` for clients; 0 is any port")
	flags.IntVar(&o.metricsPort, "metrics-port", 9090, "`port` of /metrics, /healthz and /readyz; 0 is any port, -1 is none")
	flags.DurationVar(&o.server.RequestTimeout, "request-timeout", 10*time.Second, "`time` for a client to send a request")
	flags.BoolVar(&o.server.RequestLogging, "request-logging", false, "log every request: method, path and answer, never the content")
	flags.Int64Var(&o.server.MaxRequestSize, "max-request-size", maxRequestSize, "largest body, in `bytes`, at most 1 MiB")
	flags.IntVar(&o.server.MaxInFlight, "max-in-flight", 512, "`number` of events sent at the same time; more are refused with 503")
	flags.IntVar(&o.server.MaxConnections, "max-connections", 1024, "`number` of connections; at the limit, idle ones are closed for new ones")
	flags.DurationVar(&o.server.ShutdownDelay, "shutdown-delay", 3*time.Second, "how long requests are still accepted after SIGTERM")
	flags.StringVar(&o.otlpEndpoint, "otlp-endpoint", "", "`URL` of an OTLP/HTTP receiver for traces, such as http://collector:4318; by default there are none")
	level := flags.String("log-level", "info", "lowest `level` that is logged: debug, info, warn or error")
	if err := program.Parse(flags, args, stderr); err != nil {
		return nil, err
	}
	o.backend = operatorv1alpha1.BackendType(*sendTo).Canonical()
	o.server.Metrics = eventservice.Metrics{Prefix: "eventing_publisher", Backend: string(o.backend), Taken: "stored"}
	if o.backend == operatorv1alpha1.EventMesh {
		o.server.Metrics.Taken = "delivered"
	}
	var err error
	o.logLevel, err = zapcore.ParseLevel(*level)
	return o, problems(flags.Args(), o, err)
}

// problems names everything that is wrong, at once.
func problems(rest []string, o *options, level error) error {
	var all []string
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(len(rest) > 0, "unexpected arguments: %q", rest)
	nats := o.backend == operatorv1alpha1.NATS
	add(!slices.Contains(operatorv1alpha1.BackendTypes, o.backend), "--backend %q: use %s", o.backend, operatorv1alpha1.BackendNames())
	add(o.namespace == "", "--namespace is required")
	add(o.prefix == "", "--resource-prefix must not be empty")
	add(nats && o.seedFile == "", "--nats-seed-file is required")
	add(nats && o.caFile == "", "--nats-ca-file is required")
	add(o.port < 0 || o.port > 65535, "--port %d: not a valid port", o.port)
	add(o.metricsPort > 65535, "--metrics-port %d: not a valid port", o.metricsPort)
	add(o.server.RequestTimeout <= 0, "--request-timeout must be more than 0")
	add(o.server.MaxRequestSize <= 0 || o.server.MaxRequestSize > maxRequestSize, "--max-request-size must be from 1 to %d", maxRequestSize)
	add(o.server.MaxInFlight <= 0, "--max-in-flight must be at least 1")
	add(o.server.MaxConnections <= 0, "--max-connections must be at least 1")
	add(o.server.ShutdownDelay < 0, "--shutdown-delay must not be negative")
	if err := otlp.Check(o.otlpEndpoint); err != nil {
		add(true, "--otlp-endpoint: %v", err)
	}
	add(level != nil, "--log-level: %v", level)
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}
