package trigger

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/eventbus"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// handed returns the group of a Subscription that is being deleted and waits for the
// subscription-controller, if a Trigger that is ready does the same: else nil. An earlier run has
// deleted it, or a person has. If the controller does not run, this job does the rest, after all
// that it asks before any deletion.
func (d *decision) handed(sub *unstructured.Unstructured) *group {
	if sub.GetDeletionTimestamp() == nil || d.namespaces[sub.GetNamespace()].terminating || !slices.Contains(sub.GetFinalizers(), kyma.SubscriptionFinalizer) {
		return nil
	}
	wants, why := route.DeliveryOf(sub)
	if why != nil {
		return nil
	}
	g := &group{Delivery: wants, Terms: route.TermsOf(wants, d.isNamespace), namespace: sub.GetNamespace(), subscriptions: []*unstructured.Unstructured{sub}, handed: true}
	for _, trigger := range d.triggers[g.namespace] {
		if trigger.selected != nil && !trigger.deleting && trigger.problem == "" && trigger.selected.Compare(g.Terms) == route.Same {
			g.trigger = trigger
			return g
		}
	}
	return nil
}

// leaveHanded leaves to a controller that runs what was handed to it.
func (d *decision) leaveHanded(goes map[*group][]*unstructured.Unstructured) {
	for g, subs := range goes {
		if !g.handed {
			continue
		}
		for _, sub := range subs {
			_, why := d.assess(sub)
			d.find("subscription-not-convertible", migration.Deferred, d.ref(sub), "left as it is: "+why.Problem, migration.Advice{Note: why.Note, Command: why.Command})
		}
		delete(goes, g)
	}
}

// takeOver is what is left to do of a deletion that has begun: it waits for the controller to
// stop, also if that has no pod now, so that the recheck knows whose part it is.
func takeOver(ref migration.Ref, sub *unstructured.Unstructured, steps []migration.Change) []migration.Change {
	if steps[0].Ref != eventbus.ControllerRef {
		steps = slices.Insert(steps, 0, awaitController())
	}
	for i := range steps {
		if steps[i].Verb == migration.Patch && steps[i].Ref == ref {
			steps[i].Object = sub // the deletion may be that of another unit
		}
	}
	return steps
}
