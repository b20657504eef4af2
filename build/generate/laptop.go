package main

import (
	"fmt"

	"github.com/kyma-project/eventmesh-migration/internal/migration/check"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// laptopRole is what an account needs that runs eventmesh-migrate: a ClusterRole, Roles, and their
// bindings.
func laptopRole(all []registry.Entry) ([]byte, error) {
	for i := range all {
		if _, ok := all[i].Job.(migration.Accessor); !ok && all[i].Chart != nil {
			return nil, fmt.Errorf("job %s does not say what it asks for: Access is missing (access.go)", all[i].Name())
		}
	}
	role, err := check.Role(check.Needed(registry.Jobs(all), kyma.StateNamespace), "USER")
	return append([]byte(`# What an account needs to run eventmesh-migrate. Generated from the access.go of each job by "make charts".
# USER is the name of the account ("eventmesh-migrate check --role" fills it in):
#   sed s/USER/me@example.com/ docs/migration/laptop-role.yaml | kubectl apply -f -
`), role...), err
}
