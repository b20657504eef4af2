// Registry-move moves the images of all Deployments, StatefulSets and DaemonSets of a cluster from
// one registry to another, and waits for each rollout. What a run has changed can be undone.
package main

import (
	"os"

	"github.com/kyma-project/eventmesh-migration/pkg/command"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// version is set when the program is built: go build -ldflags "-X main.version=1.0.0".
var version = "devel"

func main() {
	os.Exit(command.Run(&Job{}, command.Options{Version: version}))
}

// Settings implements migration.Configurable. They become flags.
func (j *Job) Settings() []migration.Setting {
	return []migration.Setting{
		{Name: "from", Usage: "`start` of the names of the images to move.", Value: &j.From},
		{Name: "to", Usage: "`start` of their new names.", Value: &j.To},
	}
}

// Validate implements migration.Configurable. An undo needs no flags, so that Plan looks at them.
func (*Job) Validate() error { return nil }
