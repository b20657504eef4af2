// Package engine_test proves the engine on a real API server.
package engine_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// cluster is the one control plane of this package's tests.
var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: these tests need a real API server, which -short leaves out")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	var err error
	if cluster, err = kubernetes.Start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cancel()
	code := m.Run()
	if err := cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
