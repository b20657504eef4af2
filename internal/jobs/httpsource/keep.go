package httpsource

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration"
)

// keepPage is small because a pod with its sidecar is large, and there are
// several for each Application.
const keepPage = 100

// unfinished selects pods that may still post, terminating ones included. An
// evicted pod stays for ever, with its arguments, and posts nothing.
const unfinished = "status.phase!=Succeeded,status.phase!=Failed"

// keep returns the HTTPSources that an event-service posts to, and why they must
// stay: without them it would get no answer for its events.
func keep(ctx context.Context, c reader, refs []migration.Ref) (map[migration.Ref]string, error) {
	live := liveSources{}
	read := map[string]bool{}
	for _, ref := range refs {
		if ref.Kind != kyma.HTTPSource.Kind || read[ref.Namespace] {
			continue
		}
		read[ref.Namespace] = true
		// Deployments first: the one that will go on posting is a better reason
		// than a pod of it. Pods, too, since those of an older revision post
		// until they end, and may have no Deployment any more.
		for _, workload := range []struct {
			migration.Resource
			selector string
		}{{deployments, ""}, {pods, unfinished}} {
			opts := migration.ListOptions{FieldSelector: workload.selector, PageSize: keepPage}
			err := c.Each(ctx, workload.Resource, ref.Namespace, opts, func(obj *unstructured.Unstructured) error {
				live.add(migration.Ref{Resource: workload.Resource, Namespace: ref.Namespace, Name: obj.GetName()}, obj)
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("cannot tell what carries live events: %w", err)
			}
		}
	}
	return live.reasons(refs), nil
}

// liveSource is an HTTPSource that something posts to.
type liveSource struct{ namespace, name string }

// liveSources names the workload that posts to each.
type liveSources map[liveSource]migration.Ref

func (l liveSources) add(workload migration.Ref, obj *unstructured.Unstructured) {
	for _, name := range kyma.MeshSources(obj) {
		key := liveSource{workload.Namespace, name}
		known, ok := l[key]
		// Always the same one, whatever order they come in.
		if !ok || known.Kind == workload.Kind && workload.Name < known.Name {
			l[key] = workload
		}
	}
}

func (l liveSources) reasons(refs []migration.Ref) map[migration.Ref]string {
	reasons := map[migration.Ref]string{}
	for _, ref := range refs {
		if ref.Kind != kyma.HTTPSource.Kind {
			continue
		}
		// What this job created has the name of its source.
		if workload, ok := l[liveSource{ref.Namespace, ref.Name}]; ok {
			reasons[ref] = fmt.Sprintf("carries live events: %s posts to the mesh", workload)
		}
	}
	return reasons
}

// KeepReads implements migration.KeepReader: what keep lists.
func (j *Job) KeepReads() []migration.Ref {
	return []migration.Ref{
		{Resource: deployments, Namespace: j.options.namespace},
		{Resource: pods, Namespace: j.options.namespace},
	}
}
