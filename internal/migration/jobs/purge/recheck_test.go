package purge

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestRecheck decides once more right before each removal. It fails on the commit
// before: a Subscription made after the plan went with its kind, without a word.
func TestRecheck(t *testing.T) {
	plan := decide(&snapshot{channels: []found{one(t, "Channel", "")}, definition: crd(t, onlyV1alpha1)}, New().options, mode{yes: true})
	channel, kind := &plan.Units[0].Changes[0], &plan.Units[1].Changes[0]
	const left = "deferred: CustomResourceDefinition subscriptions.eventing.kyma-project.io: left as it is: "
	for _, tc := range []struct {
		reason string
		ch     *migration.Change
		now    snapshot
		want   string
	}{
		{"nothing is used: a Channel", channel, snapshot{}, ""},
		{"nothing is used: the kind", kind, snapshot{}, ""},
		{
			"a Subscription was made after the plan", kind, snapshot{subscriptions: []found{one(t, "Subscription", "")}},
			left + "Subscription ns/x: it is a Kyma Subscription, which only the Event Bus serves (Delete it, or let trigger-sync move it to the mesh: eventmesh-migrate run --job=trigger-sync)",
		},
		{
			"and is a use of the Channels, too", channel, snapshot{subscriptions: []found{one(t, "Subscription", "")}},
			"deferred: Channel ns/x: left as it is: Subscription ns/x: it is a Kyma Subscription, which only the Event Bus serves (Delete it, or let trigger-sync move it to the mesh: eventmesh-migrate run --job=trigger-sync)",
		},
		{
			"the release was installed again", channel, snapshot{helm3: "deployed"},
			"deferred: Channel ns/x: left as it is: the Helm 3 release event-bus exists in namespace kyma-system (deployed) (This job does not delete the release. To delete it with Helm 3: helm uninstall event-bus --namespace kyma-system)",
		},
		{"one that is being deleted is no use", channel, snapshot{subscriptions: []found{one(t, "Subscription", busFinalizer+beingDeleted)}}, ""},
		{
			"but is there still, and would lose its finalizers with the kind", kind, snapshot{subscriptions: []found{one(t, "Subscription", busFinalizer+beingDeleted)}},
			left + "Subscription ns/x: it is still being deleted, and would go with its kind (Wait until it is gone, and run the job again. Its finalizers say what holds it: kubectl -n ns get subscription.eventing.kyma-project.io/x -o yaml)",
		},
		{
			"a newer Kyma has made one of its own", kind, snapshot{foreign: []found{one(t, "Subscription", "")}},
			left + "Subscription ns/x: it is no Subscription of the Event Bus, so something else uses the kind (Find out what made it. If nobody needs it, delete it, and run the job again: kubectl -n ns get subscription.eventing.kyma-project.io/x -o yaml)",
		},
		{"which does not hold the Channels", channel, snapshot{foreign: []found{one(t, "Subscription", "")}}, ""},
	} {
		got := ""
		if f := recheck(&tc.now, New().options, tc.ch); f != nil {
			got = string(f.Severity) + ": " + f.String()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
