package eventpath

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
)

// Source is where the mesh takes the events of a source (the name of an
// Application): an HTTPSource with its Channel and its adapter, a Knative Service.
// All three have the name of the source. Any may be nil: it does not exist.
type Source struct {
	Name, Namespace              string
	HTTPSource, Channel, Adapter *unstructured.Unstructured
}

// DeleteAdapter is what to do about an adapter that is not ready, and that nothing else deletes.
const DeleteAdapter = "If an old revision blocks it, delete the Service. Its controller creates a new one."

const toHTTPSources = "eventmesh-migrate run --job=httpsource-sync"

// TakesEvents says whether the mesh takes the events of the source: Channel and
// adapter are ready, and the HTTPSource says so itself. Its own condition is not
// believed alone: it goes stale when a Channel cannot be made.
func (s Source) TakesEvents() Answer { return first(s.Defects()) }

// Defects is everything for which it does not, the cause first.
func (s Source) Defects() []Answer {
	self := Object{kyma.HTTPSource, s.Namespace, s.Name}
	controller := fmt.Sprintf("kubectl -n %s logs deployment/%s", kyma.SystemNamespace, kyma.EventSourcesController)
	switch {
	case s.HTTPSource == nil:
		return []Answer{{HTTPSourceMissing, self, "does not exist", "The job creates it, and waits until it takes events.", toHTTPSources}}
	case s.HTTPSource.GetDeletionTimestamp() != nil:
		return []Answer{{HTTPSourceTerminating, self, "is being deleted",
			"Wait until it is gone, and run again. If it stays, a finalizer holds it.", of(kyma.HTTPSource, s.HTTPSource).kubectl("wait", "--for=delete")}}
	case s.HTTPSource.GetName() != s.Name || kyma.SourceOf(s.HTTPSource) != s.Name:
		self.Name = s.HTTPSource.GetName()
		return []Answer{{HTTPSourceForeign, self,
			fmt.Sprintf("is of source %q: the adapter to which the event-service of %s posts needs an HTTPSource with name and source %s", kyma.SourceOf(s.HTTPSource), s.Name, s.Name),
			"Rename or delete it. Then run the job.", toHTTPSources}}
	}
	var all []Answer
	if s.Channel == nil && s.Adapter != nil && s.Adapter.GetDeletionTimestamp() == nil {
		all = append(all, Answer{AdapterWithoutChannel, of(kyma.Service, s.Adapter),
			fmt.Sprintf("takes events, and there is no %s to send them to", Object{kyma.Channel, s.Namespace, s.Name}), "Events are lost. The log says why it is not created.", controller})
	} else if why := s.child(kyma.Channel, s.Channel, ChannelMissing, ChannelNotReady, controller); !why.OK() {
		all = append(all, why)
	} else if !kyma.Addressed(s.Channel) {
		self := of(kyma.Channel, s.Channel)
		all = append(all, Answer{ChannelNoAddress, self, "has no address", "The usual cause is NATS Streaming or its provisioner.", self.describe()})
	}
	if why := s.child(kyma.Service, s.Adapter, AdapterMissing, AdapterNotReady, controller); !why.OK() {
		all = append(all, why)
	}
	if r := k8sobject.ReadinessOf(s.HTTPSource); !r.OK() {
		all = append(all, Answer{HTTPSourceNotReady, self, r.Problem(), "The log of its controller says what is missing.", controller})
	}
	return all
}

// child says whether one of the two works, and will stay.
func (s Source) child(kind schema.GroupKind, obj *unstructured.Unstructured, missing, notReady Defect, controller string) Answer {
	self := Object{kind, s.Namespace, s.Name}
	if obj == nil {
		return Answer{missing, self, "does not exist", "The log of its controller says why it does not create it.", controller}
	}
	owner, controlled := kyma.ControllerOf(obj)
	if controlled && owner.GroupKind == kyma.HTTPSource && owner.UID != s.HTTPSource.GetUID() {
		// Ready as it may be, it will be deleted, and a new one created.
		if kind == kyma.Channel {
			notReady = ChannelFormer
		}
		return Answer{notReady, self, "belongs to an earlier HTTPSource and is about to be garbage-collected", "Wait until it is gone. If it stays, check that kube-controller-manager runs.", self.describe()}
	}
	if obj.GetDeletionTimestamp() != nil {
		return Answer{notReady, self, "is being deleted", "Wait until it is gone. If it stays, a finalizer holds it.", self.describe()}
	}
	if r := k8sobject.ReadinessOf(obj); !r.OK() {
		note := "The usual cause is NATS Streaming or its provisioner."
		if kind == kyma.Service {
			note = DeleteAdapter
		}
		return Answer{notReady, self, r.Problem(), note, self.describe()}
	}
	return Answer{}
}
