package eventservice

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"go.uber.org/zap"
)

// Listen serves clients on a port, and probes and Prometheus on another one, until ctx ends and
// every request that was read is answered. A port of 0 is any; a metricsPort below 0 is none. The
// fields are added to the line that says that it serves.
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
