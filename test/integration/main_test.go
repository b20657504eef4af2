// Package integration proves the engine and the jobs on a real API server.
package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/controlplane"
)

// cluster is the one control plane of this package's tests.
var cluster *controlplane.ControlPlane

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: these tests need a real API server, which -short leaves out")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	var err error
	if cluster, err = controlplane.Start(ctx); err != nil {
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
