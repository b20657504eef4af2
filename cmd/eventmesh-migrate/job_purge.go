package main

import (
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/purge"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// eventbusPurge comes after everything, and only when told to: it deletes.
func eventbusPurge() jobmanager.Job {
	job := purge.New()
	return jobmanager.Adapt(job, jobmanager.After(jobmanager.Global)).
		Unless(unlessAsked(func() bool { return told(job, "yes") }, "it deletes, so it runs only when told to: --eventbus-purge.yes")).Until("1.17.0")
}

// told says whether a setting of the job that is a switch is on.
func told(job migration.Configurable, name string) bool {
	for _, s := range job.Settings() {
		if on, ok := s.Value.(*bool); ok && s.Name == name {
			return *on
		}
	}
	return false
}
