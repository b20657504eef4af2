// Registry-move moves the images of all Deployments, StatefulSets and DaemonSets of a cluster from
// one registry to another, and waits for each rollout. What a run has changed can be undone.
package main

import (
	"os"

	"github.com/kyma-project/eventmesh-migration/pkg/command"
)

// version is set when the program is built: go build -ldflags "-X main.version=1.0.0".
var version = "devel"

func main() {
	os.Exit(command.Run(&Job{}, command.Options{Version: version}))
}
