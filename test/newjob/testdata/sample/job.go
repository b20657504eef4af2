// Package sample creates a ConfigMap where it is missing.
package sample

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Job is sample-sync.
type Job struct{ namespace string }

// New returns the job with its default settings.
func New() *Job { return &Job{namespace: kyma.IntegrationNamespace} }

// Name implements migration.Job.
func (j *Job) Name() string { return "sample-sync" }

// Doc implements migration.Job.
func (j *Job) Doc() (short, long string) {
	return "Create the sample where it is missing", "It creates ConfigMap sample in the integration namespace, and changes nothing else."
}

// Settings implements migration.Configurable.
func (j *Job) Settings() []migration.Setting {
	return []migration.Setting{{Name: "integration-namespace", Usage: "namespace of the sample", Value: &j.namespace}}
}

// Validate implements migration.Configurable.
func (j *Job) Validate() error {
	return migration.NamespaceSetting("integration-namespace", j.namespace)
}

// Access implements migration.Accessor.
func (j *Job) Access() []migration.Access {
	return []migration.Access{
		{Resource: "configmaps", Namespace: j.namespace, Verbs: []string{"get", "create", "delete"}, Why: "the sample"},
		migration.EventAccess(j.namespace),
	}
}

// Plan implements migration.Job.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	sample := migration.Ref{Resource: migration.CoreResource("", "configmaps", "ConfigMap"), Namespace: j.namespace, Name: "sample"}
	found, err := c.Get(ctx, sample)
	if err != nil || found != nil {
		return &migration.Plan{}, err
	}
	return &migration.Plan{Units: []migration.Unit{{ID: sample.String(), Changes: []migration.Change{{
		Verb: migration.Create, Ref: sample,
		Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": sample.Namespace, "name": sample.Name},
		}},
	}}}}}, nil
}

// Await implements migration.Job.
func (j *Job) Await(*migration.Change) []migration.Condition { return nil }
