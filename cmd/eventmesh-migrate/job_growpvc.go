package main

import (
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager"
	"github.com/kyma-project/eventmesh-migration/internal/jobs/growpvc"
)

func growPVC() jobmanager.Job {
	job := growpvc.New()
	return jobmanager.Adapt(job, jobmanager.Before(jobmanager.Global)).Unless(unlessAsked(job.Asked, "no StatefulSet is named: --grow-pvc.statefulset"))
}
