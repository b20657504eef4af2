package httpsource

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// keep returns the HTTPSources that an event-service posts to, and why they must
// stay: without them it would get no answer for its events.
func keep(ctx context.Context, c reader, refs []migration.Ref) (map[migration.Ref]string, error) {
	live := map[string]eventpath.Posters{} // by namespace
	kept := map[migration.Ref]string{}
	for _, ref := range refs {
		if ref.Kind != kyma.HTTPSource.Kind {
			continue
		}
		posters, read := live[ref.Namespace]
		if !read {
			posters = eventpath.Posters{}
			live[ref.Namespace] = posters
			err := migration.EachWorkload(ctx, c, ref.Namespace, func(workload migration.Ref, obj *unstructured.Unstructured) {
				posters.Add(workload.String(), obj)
			})
			if err != nil {
				return nil, fmt.Errorf("cannot tell what carries live events: %w", err)
			}
		}
		// What this job created has the name of its source.
		if workload, ok := posters[ref.Name]; ok {
			kept[ref] = fmt.Sprintf("carries live events: %s posts to the mesh", workload)
		}
	}
	return kept, nil
}

// ProtectReads implements migration.ProtectReader: what keep lists.
func (j *Job) ProtectReads() []migration.Subject {
	return migration.Workloads(j.options.namespace)
}
