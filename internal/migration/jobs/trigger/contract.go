package trigger

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// reason is why something must wait; the zero value says that it need not. The id is that of the
// finding.
type reason struct {
	id, problem string
	advice      migration.Advice
}

// because is a reason that something changed after the plan was made.
func because(problem string, advice migration.Advice) reason {
	return reason{"changed-meanwhile", problem, advice}
}

func (r reason) holds() bool { return r.problem == "" }

func reasonOf(a eventpath.Answer) reason {
	if a.OK() {
		return reason{}
	}
	return reason{"waits-for-" + string(a.Defect), a.Sentence(), migration.Advice{Note: a.Note, Command: a.Command}}
}

// meshTakes says whether the mesh takes the events of a source and brings them
// to a namespace: the first half of what must hold before a Subscription goes.
func (s *snapshot) meshTakes(key pair, o options) reason {
	source := eventpath.Source{
		Name: key.source, Namespace: o.integrationNamespace,
		HTTPSource: s.sources[key.source], Channel: s.mesh.channels[key.source], Adapter: s.mesh.services[key.source],
	}
	if why := source.TakesEvents(); !why.OK() {
		return reasonOf(why)
	}
	link := eventpath.Link{
		Source: key.source, Namespace: key.namespace, Integration: o.integrationNamespace,
		Links: s.links[key], Broker: s.brokers[key.namespace],
	}
	return reasonOf(link.Brings())
}

// switched says whether everything that posts the events of a source posts them
// to the mesh.
func (s *snapshot) switched(source string, o options) reason {
	service := eventpath.EventService{
		Application: source, Namespace: o.integrationNamespace,
		Deployment: s.mesh.eventServices[source], Former: s.mesh.former.Of(source),
		Optional: s.applications[source].withoutEventService, // nothing was ever installed that could post
	}
	return reasonOf(service.Switched())
}

// unready says why an object does not count as ready; "" if it does.
func unready(ref fmt.Stringer, obj *unstructured.Unstructured) string {
	r := k8sobject.ReadinessOf(obj)
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return fmt.Sprintf("%s is being deleted", ref)
	case r.OK():
		return ""
	}
	return fmt.Sprintf("%s %s", ref, r.Problem())
}
