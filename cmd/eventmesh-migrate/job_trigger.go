package main

import (
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/trigger"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
)

func triggerSync() jobmanager.Job {
	return jobmanager.Adapt(trigger.New(),
		jobmanager.Before(componentCore, "serviceinstance-recreate"),
		jobmanager.Before(componentApplicationConnector, "serviceinstance-recreate"),
		jobmanager.After(componentCore),
		jobmanager.After(componentApplicationConnector, "eventservice-verify"),
	).Requiring(needs(kyma.Subscription)).Until("1.13.0")
}
