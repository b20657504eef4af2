package main

import (
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/serviceinstance"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
)

func serviceinstanceRecreate() jobmanager.Job {
	return jobmanager.Adapt(serviceinstance.New(),
		jobmanager.Before(componentCore, "httpsource-sync"),
		jobmanager.Before(componentApplicationConnector, "httpsource-sync"),
	).Requiring(needs(kyma.ServiceInstance)).Until("1.13.0")
}
