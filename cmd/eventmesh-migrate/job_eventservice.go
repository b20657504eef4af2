package main

import (
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
)

func eventserviceVerify() jobmanager.Job {
	return jobmanager.Adapt(eventservice.New(), jobmanager.After(componentApplicationConnector)).
		Requiring(needs(kyma.Application)).Unless(notYetUpgraded).
		WithoutUndo("it changes nothing, so there is nothing to take back").Until("1.13.0")
}
