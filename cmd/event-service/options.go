package main

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/tracing/otlp"
)

// options are the command line's.
type options struct {
	server          eventservice.Options
	externalAPIPort int
	metricsPort     int
	logLevel        zapcore.Level
	otlpEndpoint    string
	// ignored are the flags and arguments that were given and mean nothing.
	ignored []string
	// warnings are about flags that Kyma's took, and that are read in another way, or let nothing
	// work.
	warnings []string
}

// maxRequestSize is where a limit is none any more: a body is held in memory.
const maxRequestSize = 1 << 30

// defaultTimeout is used instead of none, too: without one, an adapter that hangs would hold each
// event for ever.
const defaultTimeout = 10

// former are flags of the event-services of 1.10 and before. They are still
// passed by charts, and were ignored by 1.11, too.
var former = []string{"eventsTargetURL", "eventsTargetURLV1", "eventsTargetURLV2"}

// parse reads the command line as Kyma's event-service did: flags with one dash or
// two, and, first, the path of the program in the image, which charts give as an
// argument since that image has no entry point.
func parse(args []string, stderr io.Writer) (*options, error) {
	if len(args) > 0 && path.IsAbs(args[0]) {
		args = args[1:]
	}
	o := &options{}
	flags := program.Flags("event-service", "event-service serves the legacy event API of one Application on the event mesh.")
	flags.StringVar(&o.server.MeshURL, "eventMeshURL", "", "`URL` of the HTTPSource adapter, the entry of the event mesh; required")
	flags.StringVar(&o.server.SourceID, "sourceId", "", "the `source` of every event: the name of the Application; required")
	flags.IntVar(&o.externalAPIPort, "externalAPIPort", 8081, "`port` of the API")
	flags.IntVar(&o.metricsPort, "metricsPort", 9090, "`port` of /metrics, and of /v1/health for probes; 0 is any port, -1 is none")
	requestTimeout := flags.Int("requestTimeout", defaultTimeout, "`seconds` for a client to send a request, and then for the adapter to accept it; 0 is 10")
	flags.BoolVar(&o.server.RequestLogging, "requestLogging", false, "log every request: method, path and answer, never the content")
	flags.Int64Var(&o.server.MaxRequestSize, "maxRequestSize", 65536, "largest body, in `bytes`")
	flags.IntVar(&o.server.MaxInFlight, "maxInFlight", 512, "`number` of events posted at the same time; more are refused with 503")
	flags.IntVar(&o.server.MaxConnections, "maxConnections", 1024, "`number` of connections; at the limit, idle ones are closed for new ones")
	flags.DurationVar(&o.server.ShutdownDelay, "shutdownDelay", 3*time.Second, "how long requests are still accepted after SIGTERM")
	flags.StringVar(&o.otlpEndpoint, "otlpEndpoint", "", "`URL` of an OTLP/HTTP receiver for traces, such as http://collector:4318; by default there are none")
	level := flags.String("logLevel", "info", "lowest `level` that is logged: debug, info, warn or error")
	for _, name := range former {
		flags.String(name, "", "ignored: events go to the mesh")
	}
	if err := program.Parse(flags, args, stderr); err != nil {
		return nil, err
	}
	for _, argument := range flags.Args() {
		o.ignored = append(o.ignored, fmt.Sprintf("%q", argument))
	}
	if *requestTimeout <= 0 {
		o.warnings = append(o.warnings, fmt.Sprintf("--requestTimeout=%d: there must be a limit, it is %d seconds", *requestTimeout, defaultTimeout))
		*requestTimeout = defaultTimeout
	}
	if o.server.MaxRequestSize <= 0 {
		o.warnings = append(o.warnings, fmt.Sprintf("--maxRequestSize=%d: every event is refused as too large", o.server.MaxRequestSize))
		o.server.MaxRequestSize = 0
	}
	o.server.RequestTimeout = time.Duration(*requestTimeout) * time.Second
	flags.Visit(func(f *pflag.Flag) {
		if slices.Contains(former, f.Name) {
			o.ignored = append(o.ignored, f.Name)
		}
	})
	var err error
	o.logLevel, err = zapcore.ParseLevel(*level)
	return o, problems(o, err)
}

// problems names everything that is wrong, at once.
func problems(o *options, level error) error {
	var all []string
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(o.server.MeshURL == "", "--eventMeshURL is required")
	add(o.server.SourceID == "", "--sourceId is required")
	add(o.externalAPIPort < 0 || o.externalAPIPort > 65535, "--externalAPIPort %d: not a valid port", o.externalAPIPort)
	if err := otlp.Check(o.otlpEndpoint); err != nil {
		add(true, "--otlpEndpoint: %v", err)
	}
	add(o.metricsPort > 65535, "--metricsPort %d: not a valid port", o.metricsPort)
	add(o.server.MaxRequestSize > maxRequestSize, "--maxRequestSize must be at most %d", maxRequestSize)
	add(o.server.MaxInFlight <= 0, "--maxInFlight must be at least 1")
	add(o.server.MaxConnections <= 0, "--maxConnections must be at least 1")
	add(o.server.ShutdownDelay < 0, "--shutdownDelay must not be negative")
	add(level != nil, "--logLevel: %v", level)
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}
