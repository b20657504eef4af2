package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/controller"
	"github.com/kyma-project/eventmesh-migration/internal/tracing/otlp"
)

// leastLease is the shortest Lease: a leader has to renew it several times before it ends.
const leastLease = time.Second

// parse reads the command line. The environment says which pod this is.
func parse(args []string, env func(string) string, stderr io.Writer) (controller.Options, zapcore.Level, error) {
	o := controller.Options{Pod: cmp.Or(env("POD_NAME"), "eventing-controller")}
	flags := program.Flags("eventing-controller", "eventing-controller delivers events to the sinks of Subscriptions.")
	flags.StringVar(&o.Namespace, "namespace", cmp.Or(env("POD_NAMESPACE"), "kyma-system"), "`namespace` of the ConfigMaps and the Lease; by default that of the pod")
	prefix := flags.String("resource-prefix", backend.DefaultPrefix, "`prefix` of the names of all objects")
	flags.StringVar(&o.Version, "version", "devel", "`version` of the operator, for the labels of objects")
	flags.StringVar(&o.SeedFile, "nats-seed-file", "/etc/eventing/nats-user/controller", "`file` with the seed of the NATS user")
	flags.StringVar(&o.CAFile, "nats-ca-file", "/etc/eventing/nats-ca/ca.crt", "`file` with the authority of the NATS servers")
	deadLetterSink := flags.String("dead-letter-sink", "", "`URL` for events that are given up; without it they are stored as dead letters")
	flags.DurationVar(&o.DeadLetterAfter, "dead-letter-after", 24*time.Hour, "how long after it was published an event is given up that its sink does not take")
	flags.StringVar(&o.MetricsAddress, "metrics-address", ":8080", "`address` of /metrics; 0 is none")
	flags.StringVar(&o.HealthAddress, "health-address", ":8081", "`address` of /healthz and /readyz; 0 is none")
	flags.StringVar(&o.DeliverAddress, "deliver-address", ":8082", "`address` where the mesh posts events; 0 is none")
	flags.StringVar(&o.LettersAddress, "letters-address", "localhost:8085", "`address` where kubectl eventing reaches dead letters, with a port-forward; 0 is none")
	flags.DurationVar(&o.KeepConsumers, "keep-consumers", backend.KeepConsumers, "how long events are kept for a Subscription that does not exist, and may be restored from a backup")
	flags.DurationVar(&o.Lease, "lease-duration", 15*time.Second, "how long others wait for a leader that does not renew its Lease")
	flags.StringVar(&o.OTLPEndpoint, "otlp-endpoint", "", "`URL` of an OTLP/HTTP receiver for traces, such as http://collector:4318; by default there are none")
	flags.StringVar(&o.DNSServer, "dns-server", "", "`host:port` of the DNS server that knows the sinks; by default that of the system")
	level := flags.String("log-level", "info", "lowest `level` that is logged: debug, info, warn or error")
	if err := program.Parse(flags, args, stderr); err != nil {
		return o, 0, err
	}
	o.Names = backend.Names(*prefix)
	if o.LettersAddress == "0" {
		o.LettersAddress = ""
	}
	logLevel, levelErr := zapcore.ParseLevel(*level)

	var all []string
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(flags.NArg() > 0, "unexpected arguments: %q", flags.Args())
	add(len(validation.IsDNS1123Label(o.Namespace)) > 0, "--namespace %q is no name of a namespace", o.Namespace)
	add(len(validation.IsDNS1123Label(*prefix)) > 0, "--resource-prefix %q cannot begin a name", *prefix)
	add(o.DeadLetterAfter < 0, "--dead-letter-after must not be negative")
	add(o.KeepConsumers < 0, "--keep-consumers must not be negative")
	add(o.Lease < leastLease, "--lease-duration must be at least %s", leastLease)
	add(levelErr != nil, "--log-level: %v", levelErr)
	if err := otlp.Check(o.OTLPEndpoint); err != nil {
		add(true, "--otlp-endpoint: %v", err)
	}
	if o.DNSServer != "" {
		_, _, err := net.SplitHostPort(o.DNSServer)
		add(err != nil, "--dns-server %q is not of the form host:port", o.DNSServer)
	}
	if *deadLetterSink != "" {
		var err error
		o.DeadLetterSink, err = url.Parse(*deadLetterSink)
		add(err != nil || o.DeadLetterSink.Scheme != "http" && o.DeadLetterSink.Scheme != "https" || o.DeadLetterSink.Host == "", "--dead-letter-sink is not of the form http://<host>")
	}
	if len(all) > 0 {
		return o, 0, errors.New(strings.Join(all, "; "))
	}
	return o, logLevel, nil
}
