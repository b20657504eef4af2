package eventservice

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Listen serves clients on a port, and probes and Prometheus on another one, until ctx ends and every request that was read is answered.
// A port of 0 is any; a metricsPort below 0 is none. The fields are added to the line that says that it serves.
func (s *Server) Listen(ctx context.Context, port, metricsPort int, fields ...zap.Field) error {
	var config net.ListenConfig
	api, err := config.Listen(ctx, "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return fmt.Errorf("cannot listen for clients: %w", err)
	}
	if metricsPort >= 0 {
		l, err := config.Listen(ctx, "tcp", ":"+strconv.Itoa(metricsPort))
		if err != nil {
			_ = api.Close()
			return fmt.Errorf("cannot listen for probes and Prometheus: %w", err)
		}
		// It runs until the end, because it reports the end, too.
		internal, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		go func() {
			if err := s.ServeInternal(internal, l); err != nil {
				s.log.Warn("metrics server stopped: no metrics, and no answers to probes", zap.Error(err))
			}
		}()
		s.log.Info("serving metrics", zap.String("address", l.Addr().String()))
	}
	s.log.Info("serving", append([]zap.Field{zap.String("address", api.Addr().String())}, fields...)...)
	return s.Serve(ctx, api)
}

// NewLoggers write JSON lines. Of lines that are alike, the first writes a hundred a
// second and then each hundredth: an adapter that is down must not fill a disk. The
// second writes all, for --requestLogging.
func NewLoggers(w io.Writer, level zapcore.Level) (log, requests *zap.Logger) {
	cfg := zap.NewProductionEncoderConfig()
	cfg.TimeKey, cfg.MessageKey = "time", "message"
	cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	cfg.EncodeDuration = zapcore.SecondsDurationEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(cfg), zapcore.Lock(zapcore.AddSync(w)), level)
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Second, 100, 100)), zap.New(core)
}
