// Registry-move moves the images of all Deployments, StatefulSets and DaemonSets of a cluster from
// one registry to another, and waits for each rollout. What a run has changed can be undone.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func main() {
	flag.Parse()
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")) // without one, that of the Pod
	if err != nil {
		log.Fatal(err)
	}
	e, err := engine.New(cfg, engine.Options{Names: migration.Names{Program: "registry-move"}, Timeout: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	command := map[string]func(context.Context, migration.Job) *migration.Report{"plan": e.Plan, "run": e.Run, "undo": e.Undo}[flag.Arg(0)]
	if command == nil {
		log.Fatal("usage: registry-move plan|run FROM TO, or registry-move undo")
	}
	report := command(ctx, Job{From: flag.Arg(1), To: flag.Arg(2)})
	_ = json.NewEncoder(os.Stdout).Encode(report) // stdout is closed, if this fails
	os.Exit(report.ExitCode())
}
