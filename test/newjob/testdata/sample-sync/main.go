// Command sample-sync creates a ConfigMap where it is missing.
package main

import (
	"os"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/sample"
)

func main() {
	os.Exit(cli.Run(sample.New(), cli.OS()))
}
