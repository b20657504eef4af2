package main

import (
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/scaledown"
)

func eventbusScaledown() jobmanager.Job {
	return jobmanager.Adapt(scaledown.New(),
		jobmanager.After(componentCore, "trigger-sync"),
		jobmanager.After(componentApplicationConnector, "trigger-sync"),
	).Until("1.13.0")
}
