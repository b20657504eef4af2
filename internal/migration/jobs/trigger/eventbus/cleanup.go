package eventbus

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Incapable says why the subscription-controller does not do its part, although it has replicas;
// "" if it does. A Subscription of unparsable ends it as soon as it comes to that.
func (b *Bus) Incapable(k migration.Kind, unparsable []*unstructured.Unstructured) (problem string, advice migration.Advice) {
	switch {
	case b.Problem != "":
		return b.Problem, migration.Advice{Note: "Its log says why it ended.", Command: PreviousLog()}
	case len(unparsable) > 0:
		bad := unparsable[0]
		return fmt.Sprintf("it ends at each start, because spec.endpoint of %s is not a URL", k.RefTo(bad)), migration.Advice{
			Note: "Correct the endpoint, or delete that Subscription.", Command: migration.Kubectl(bad.GetNamespace(), "edit", k.Named(bad.GetName())),
		}
	}
	return "", migration.Advice{}
}

// Owners names finalizers with who is likely to remove each.
func Owners(finalizers []string) string {
	var all []string
	for _, f := range finalizers {
		owner, _, qualified := strings.Cut(f, "/")
		switch {
		case f == kyma.SubscriptionFinalizer:
			all = append(all, fmt.Sprintf("%s (Deployment %s/%s)", f, kyma.SystemNamespace, kyma.SubscriptionController))
		case qualified:
			all = append(all, fmt.Sprintf("%s (a controller of %s)", f, owner))
		case f == "foregroundDeletion" || f == "orphan":
			all = append(all, f+" (the garbage collector of Kubernetes)")
		default:
			all = append(all, f+" (whatever controller is called so)")
		}
	}
	return strings.Join(all, ", ")
}

// CleanedUp is met when the subscription-controller has done its part of a deletion that was handed
// to it, and fails when it ends again and again: then the next run takes over.
// unparsable says whether a Subscription ends the controller.
func CleanedUp(ch *migration.Change, unparsable func(*unstructured.Unstructured) bool) migration.Condition {
	subscriptions := migration.Kind{GroupKind: kyma.Subscription}
	return migration.Condition{
		Text: fmt.Sprintf("%s to clean up after it", ControllerRef),
		On:   append(ControllerSubjects(), ch.Ref.Subject(), subscriptions.Subject("", "")),
		Eval: func(v migration.View) migration.Status {
			sub := v.Get(ch.Ref.Subject())
			if sub == nil || sub.GetUID() != ch.UID || !slices.Contains(sub.GetFinalizers(), kyma.SubscriptionFinalizer) {
				return migration.Status{State: migration.Met}
			}
			why := ControllerOf(v).Crashes()
			if why == "" {
				return migration.Status{Message: fmt.Sprintf("%s has not removed its finalizer", ControllerRef), Note: "Check that it runs.", Command: Show()}
			}
			st := migration.Status{
				State: migration.Failed, ID: "controller-crashes", Stays: true,
				Message: fmt.Sprintf("%s, which is to clean up after it, ends at each start: %s", ControllerRef, why),
				Note:    "Run the job again: it does the controller's part. The controller's log says why it ended.", Command: PreviousLog(),
			}
			for _, bad := range v.List(kyma.Subscription, "") {
				if bad.GetDeletionTimestamp() == nil && unparsable(bad) {
					st.Message += fmt.Sprintf("; spec.endpoint of %s is not a URL", subscriptions.RefTo(bad))
					st.Note = "Correct that endpoint, or delete that Subscription: the controller then finishes by itself. Or run the job again: it does the controller's part."
					st.Command = migration.Kubectl(bad.GetNamespace(), "edit", subscriptions.Named(bad.GetName()))
					break
				}
			}
			return st
		},
	}
}

// Unsubscribed is met when no Knative Subscription is left on a Channel of the
// Event Bus.
func Unsubscribed(ch *migration.Change) migration.Condition {
	link := migration.Kind{GroupKind: kyma.ChannelSubscription}
	return migration.Condition{
		Text: fmt.Sprintf("the last subscriber of %s to go", ch.Ref), On: []migration.Subject{link.Subject(ch.Ref.Namespace, "")},
		Eval: func(v migration.View) migration.Status {
			for _, obj := range v.List(link.GroupKind, ch.Ref.Namespace) {
				if k8sobject.Text(k8sobject.MapAt(obj.Object, "spec", "channel")["name"]) == ch.Ref.Name {
					return migration.Status{
						Message: fmt.Sprintf("%s still subscribes to it", link.RefTo(obj)), Note: "Check why it is not deleted.",
						Command: link.Describe(obj.GetNamespace(), obj.GetName()),
					}
				}
			}
			return migration.Status{State: migration.Met}
		},
	}
}
