// Package otlp sends the spans of a program to a collector of OpenTelemetry, by OTLP over HTTP.
package otlp

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kyma-project/eventmesh-migration/internal/tracing"
	"github.com/kyma-project/eventmesh-migration/internal/version"
)

const (
	// tracesPath is where a collector takes spans, behind the address of its receiver (OTLP/HTTP).
	// Some know the address with it: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is of that form.
	tracesPath = "v1/traces"
	// flushLimit is how long the end of a process waits for the collector to take the last spans.
	flushLimit = 3 * time.Second
	// quiet is the shortest time between two lines of the log about spans that were not sent.
	quiet = time.Minute
)

// Check says what is wrong with the address of a collector; nil for "", which means none.
func Check(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "", u.RawQuery != "", u.Fragment != "", u.User != nil:
		return fmt.Errorf("%q is not of the form http://<host>:4318", endpoint)
	}
	return nil
}

// Start returns the Tracer of a program. The endpoint is the address of an OTLP/HTTP receiver, such
// as http://collector.tracing:4318; "" is none, and the Tracer nil. Spans are sent in batches,
// beside the events: a collector that does not answer costs spans, and holds up nothing.
func Start(ctx context.Context, endpoint, service string, log *zap.Logger) (*tracing.Tracer, error) {
	if endpoint == "" {
		return nil, nil
	}
	if err := Check(endpoint); err != nil {
		return nil, err
	}
	u, err := url.Parse(strings.TrimSuffix(strings.TrimRight(endpoint, "/"), "/"+tracesPath))
	if err != nil {
		return nil, err
	}
	few := log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return zapcore.NewSamplerWithOptions(core, quiet, 1, 0) }))
	lost := func(err error) {
		few.Warn("spans are not sent; events are not affected", zap.String("collector", endpoint), zap.Error(err))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		few.Warn("OpenTelemetry reports an error; events are not affected", zap.Error(err))
	}))
	exporter, err := otlptrace.New(ctx, newClient(u.JoinPath(tracesPath).String(), lost))
	if err != nil {
		return nil, fmt.Errorf("cannot send traces to %s: %w", endpoint, err)
	}
	// OTEL_RESOURCE_ATTRIBUTES is merged into it.
	about := resource.NewSchemaless(attribute.String("service.name", service), attribute.String("service.version", version.String()))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about), sdk.WithSampler(sdk.ParentBased(sdk.NeverSample())))
	return tracing.New(provider, service, func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
		defer cancel()
		_ = provider.Shutdown(ctx) // the client says what is lost
	}), nil
}
