package main

import (
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/httpsource"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
)

func httpsourceSync() jobmanager.Job {
	return jobmanager.Adapt(httpsource.New(),
		jobmanager.Before(componentCore),
		jobmanager.Before(componentApplicationConnector),
	).Requiring(needs(kyma.Application)).Until("1.13.0")
}
