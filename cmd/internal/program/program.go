// Package program is the frame of commands that run until a signal ends them: exit codes, signals,
// logs, and the way to the cluster.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The exit codes.
const (
	OK     = 0
	Failed = 1
	Usage  = 2
)

// Main runs a command until it ends or a signal comes, and ends the process with its exit code.
func Main(run func(ctx context.Context) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx)
	stop()
	os.Exit(code)
}

// Refused is the exit code for an error of the flags, which it writes to stderr. --help is none.
func Refused(name string, err error, stderr io.Writer) int {
	if errors.Is(err, pflag.ErrHelp) {
		return OK
	}
	fmt.Fprintf(stderr, "%s: %v\n%s --help lists the flags\n", name, err, name)
	return Usage
}

// NewLoggers write JSON lines. Of lines that are alike, the first logger writes a hundred a second
// and then each hundredth: something that is down must not fill a disk. The second writes all.
func NewLoggers(w io.Writer, level zapcore.Level) (log, all *zap.Logger) {
	c := zap.NewProductionEncoderConfig()
	c.TimeKey, c.MessageKey = "time", "message"
	c.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	c.EncodeDuration = zapcore.SecondsDurationEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(c), zapcore.Lock(zapcore.AddSync(w)), level)
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Second, 100, 100)), zap.New(core)
}

// Cluster is that of a kubeconfig, else that of the pod. The API server sees agent in its audit
// log.
func Cluster(rules *clientcmd.ClientConfigLoadingRules, agent string) (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot find the cluster: %w", err)
	}
	config.UserAgent = agent
	return config, nil
}
