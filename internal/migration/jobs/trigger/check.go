package trigger

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// ready is met when the object of the change is ready.
func ready(ch *migration.Change, ref migration.Subject) migration.Condition {
	c := migration.Condition{Text: fmt.Sprintf("%s to be ready", ref), On: []migration.Subject{ref}}
	// A view lags behind a create, so that what is not in it yet has to be told
	// from what was deleted: the only thing the condition remembers.
	var seen atomic.Bool
	c.Eval = func(v migration.View) migration.Status {
		obj := v.Get(ref)
		note, command := "Its conditions say what is missing.", migration.Kind{GroupKind: ref.GroupKind}.Describe(ref.Namespace, ref.Name)
		if ch.Verb == migration.Create {
			advice := migration.AfterRollback(ref.Namespace, "The usual causes are its Broker or its subscriber.")
			note, command = advice.Note, advice.Command
		}
		switch {
		case obj == nil && seen.Load():
			return migration.Status{State: migration.Failed, Message: fmt.Sprintf("%s was deleted meanwhile", ref), Note: "Find out who deletes it, and run the job again.", Command: runJob}
		case obj == nil && ch.Verb == migration.Create:
			return migration.Status{Message: fmt.Sprintf("%s is not visible yet", ref)}
		case obj == nil:
			return migration.Status{
				Message: fmt.Sprintf("%s does not exist", ref), Note: "The log of its controller says why.",
				Command: migration.Kubectl(kyma.EventingNamespace, "logs", "deployment/eventing-controller"),
			}
		}
		seen.Store(true)
		why := unready(ref, obj)
		switch {
		case why == "":
			return migration.Status{State: migration.Met}
		case strings.Contains(why, "object is being deleted"):
			// Known from the upgrade of Knative 0.10 to 0.12.
			note = fmt.Sprintf("The deletion of the Knative Subscription of the Trigger does not end. Scale Deployment %s/eventing-controller to 0. "+
				"Remove the finalizers of that Subscription. Scale to 1 again. To see it:", kyma.EventingNamespace)
			command = migration.Kubectl(ref.Namespace, "get", "subscriptions."+kyma.ChannelSubscription.Group, "-l", "eventing.knative.dev/trigger="+ref.Name)
		}
		return migration.Status{Message: why, Note: note, Command: command}
	}
	return c
}

// corrected is met when a Trigger that was patched is ready. A view lags behind the write, and the
// Trigger was ready before it, too.
func corrected(ch *migration.Change) migration.Condition {
	ref := ch.Ref.Subject()
	c := ready(ch, ref)
	eval := c.Eval
	c.Eval = func(v migration.View) migration.Status {
		if obj := v.Get(ref); obj != nil && ch.Object != nil && !route.Followed(ch, obj) {
			return migration.Status{Message: fmt.Sprintf("%s is not visible yet as it was changed", ref)}
		}
		return eval(v)
	}
	return c
}

// expectation is what awaiting an EventActivation needs to know.
type expectation struct {
	// Source of the events, that of the EventActivation when the plan was made.
	Source string `json:"source"`
}

// activated is met when the events of an EventActivation's source come to its
// namespace.
func activated(ch *migration.Change, integration string) migration.Condition {
	var expected expectation
	if err := json.Unmarshal(ch.Expect, &expected); err != nil {
		expected = expectation{} // of no source
	}
	source := expected.Source
	activation := ch.Ref.Subject()
	return migration.Condition{
		Text: fmt.Sprintf("a Knative Subscription for %s", ch.Ref),
		On:   []migration.Subject{{GroupKind: kyma.ChannelSubscription, Namespace: integration}, activation},
		Eval: func(v migration.View) migration.Status {
			if obj := v.Get(activation); obj == nil || obj.GetDeletionTimestamp() != nil {
				return migration.Status{State: migration.Met} // nobody asks for it any more
			}
			for _, obj := range v.List(kyma.ChannelSubscription, integration) {
				labels := obj.GetLabels()
				if labels[kyma.ApplicationNameLabel] == source && labels[kyma.BrokerNamespaceLabel] == ch.Ref.Namespace {
					return migration.Status{State: migration.Met}
				}
			}
			return migration.Status{
				Message: fmt.Sprintf("no Knative Subscription in %s brings the events of %s to namespace %s", integration, source, ch.Ref.Namespace),
				ID:      "link-not-created",
				Note:    fmt.Sprintf("application-broker creates it when it provisions a ServiceInstance of Application %s in namespace %s. Its log says why not.", source, ch.Ref.Namespace),
				Command: migration.Kubectl(integration, "logs", "deployment/"+kyma.ApplicationBroker),
			}
		},
	}
}
