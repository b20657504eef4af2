package main

import (
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/adoptbyhelm"
)

func adoptByHelm() jobmanager.Job {
	job := adoptbyhelm.New()
	return jobmanager.Adapt(job, jobmanager.Before(jobmanager.Global)).Unless(unlessAsked(job.Asked, "no object is named: --adopt-by-helm.objects"))
}
