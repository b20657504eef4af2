package serviceinstance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Kinds of expectations.
const (
	expectQuiet       = "quiet"
	expectGone        = "gone"
	expectProvisioned = "provisioned"
)

// expectation is what an Await change waits for, as plain data: it goes through
// the journal, in the change's Expect.
type expectation struct {
	Kind string `json:"kind"`
	// Bindings and Usages are those that are known.
	Bindings []string `json:"bindings,omitempty"`
	Usages   []string `json:"usages,omitempty"`
	// UID of the instance that is gone.
	UID types.UID `json:"uid,omitempty"`
	// Activation is the name of the EventActivation.
	Activation  string `json:"activation,omitempty"`
	Application string `json:"application,omitempty"`
}

func (e expectation) encode() json.RawMessage { return mustJSON(e) }

func expectationOf(ch *migration.Change) expectation {
	var e expectation
	if len(ch.Expect) == 0 {
		return e
	}
	if err := json.Unmarshal(ch.Expect, &e); err != nil {
		return expectation{} // of nothing
	}
	return e
}

// checks are the conditions of the job.
type checks struct {
	options options
}

// quiet is met when nothing else uses an instance than what is known, and
// application-broker is in no operation that a restart would let it forget.
func (c checks) quiet(instance migration.Ref, e expectation) migration.Condition {
	return migration.Condition{
		Text: "application-broker to be idle", Timeout: c.options.readyTimeout,
		On: []migration.Subject{
			{GroupKind: kyma.ServiceBinding, Namespace: instance.Namespace}, {GroupKind: kyma.ServiceInstance}, {GroupKind: kyma.ServiceClass},
		},
		OnIfServed: []migration.Subject{{GroupKind: kyma.ServiceBindingUsage, Namespace: instance.Namespace}},
		Eval: func(v migration.View) migration.Status {
			foreign := func(obj *unstructured.Unstructured) migration.Status {
				advice := again("Run the job again. It includes this object then.")
				return migration.Status{
					State: migration.Failed, Message: fmt.Sprintf("%s %s/%s was made meanwhile, and would be lost", obj.GetKind(), obj.GetNamespace(), obj.GetName()),
					Note: advice.Note, Command: advice.Command,
				}
			}
			for _, binding := range v.List(kyma.ServiceBinding, instance.Namespace) {
				if specOf(binding, "instanceRef", "name") == instance.Name && !slices.Contains(e.Bindings, binding.GetName()) {
					return foreign(binding)
				}
			}
			for _, usage := range v.List(kyma.ServiceBindingUsage, instance.Namespace) {
				if slices.Contains(e.Bindings, specOf(usage, "serviceBindingRef", "name")) && !slices.Contains(e.Usages, usage.GetName()) {
					return foreign(usage)
				}
			}
			ours := map[id]bool{}
			for _, class := range v.List(kyma.ServiceClass, "") {
				ours[idOf(class)] = specOf(class, "serviceBrokerName") == kyma.ApplicationBroker
			}
			for _, other := range v.List(kyma.ServiceInstance, "") {
				if idOf(other) != (id{instance.Namespace, instance.Name}) && worksOn(other, ours) {
					return migration.Status{
						Message: fmt.Sprintf("the %s of %s goes on", strings.ToLower(kyma.InstanceOf(other).Operation), migration.SubjectOf(kyma.ServiceInstance, other.GetNamespace(), other.GetName())),
						Note:    "Wait until it ends.", Command: instanceKind.Describe(other.GetNamespace(), other.GetName()),
					}
				}
			}
			return migration.Status{State: migration.Met}
		},
	}
}

// worksOn says whether application-broker is in an operation for an instance that
// a restart would let it forget; ours are its classes. An operation that is not
// answered for is lost already.
func worksOn(instance *unstructured.Unstructured, ours map[id]bool) bool {
	s := kyma.InstanceOf(instance)
	return s.Polling && s.Ready.Reason != kyma.ReasonPolling && ours[id{instance.GetNamespace(), specOf(instance, "serviceClassRef", "name")}]
}

// deletable fails when the deletion of an instance has become one that never ends. The engine waits
// until it ends.
func (c checks) deletable(ref migration.Ref) migration.Condition {
	return migration.Condition{
		Text: fmt.Sprintf("%s to be deprovisioned", ref), On: []migration.Subject{ref.Subject()}, Timeout: c.options.deleteTimeout,
		Eval: func(v migration.View) migration.Status {
			obj := v.Get(ref.Subject())
			if obj == nil || obj.GetDeletionTimestamp() == nil {
				return migration.Status{State: migration.Met}
			}
			if s := kyma.InstanceOf(obj); s.Undeletable {
				return migration.Status{
					State: migration.Failed, Message: "its deprovisioning has failed permanently: " + s.Ready.String(),
					Note: "The log of application-broker says why.", Command: c.options.logs(),
				}
			}
			return migration.Status{State: migration.Met}
		},
	}
}

// gone is met when what application-broker made for an instance that is gone is
// gone, too, or is to stay: what is still there when the new instance is
// provisioned counts as made, and would go later.
func (c checks) gone(activation migration.Ref, e expectation) migration.Condition {
	links := c.links()
	return migration.Condition{
		Text: fmt.Sprintf("%s to go", activation), On: []migration.Subject{activation.Subject(), links}, Timeout: c.options.activationTimeout,
		Eval: func(v migration.View) migration.Status {
			obj := v.Get(activation.Subject())
			switch {
			case obj == nil:
			case obj.GetDeletionTimestamp() != nil:
				return migration.Status{
					Message: fmt.Sprintf("it still has the finalizers %q", obj.GetFinalizers()),
					Note:    "The subscription-controller removes " + kyma.EventActivationFinalizer + ".",
					Command: migration.Kubectl(kyma.SystemNamespace, "logs", "deployment/"+kyma.SubscriptionController),
				}
			case slices.ContainsFunc(obj.GetOwnerReferences(), ownedBy(e.UID)):
				return migration.Status{Message: "the garbage collector has not deleted it yet", Note: "Check that kube-controller-manager runs."}
			}
			for _, link := range v.List(links.GroupKind, links.Namespace) {
				if pairOf(link) == (pair{e.Application, activation.Namespace}) && link.GetDeletionTimestamp() != nil {
					return migration.Status{
						Message: fmt.Sprintf("Knative %s still has the finalizers %q", migration.SubjectOf(kyma.ChannelSubscription, link.GetNamespace(), link.GetName()), link.GetFinalizers()),
						Note:    "The log of its controller may say why.",
						Command: migration.Kubectl(kyma.EventingNamespace, "logs", "deployment/eventing-controller"),
					}
				}
			}
			return migration.Status{State: migration.Met}
		},
	}
}

func ownedBy(uid types.UID) func(metav1.OwnerReference) bool {
	return func(owner metav1.OwnerReference) bool {
		return owner.Kind == kyma.ServiceInstance.Kind && owner.UID == uid
	}
}

// provisioned is met when an instance is.
func (c checks) provisioned(ref migration.Ref) migration.Condition {
	broker := migration.Subject{GroupKind: pods.GroupKind(), Namespace: c.options.integrationNamespace}
	restart := migration.Kubectl(c.options.integrationNamespace, "rollout", "restart", "deployment", kyma.ApplicationBroker)
	stands := func(state migration.State, message string) migration.Status {
		return migration.Status{State: state, Message: message, Note: "Its conditions, and the log of application-broker, say why.", Command: instanceKind.Describe(ref.Namespace, ref.Name)}
	}
	return migration.Condition{
		Text: fmt.Sprintf("%s to be provisioned", ref), On: []migration.Subject{ref.Subject(), broker}, Timeout: c.options.readyTimeout,
		Eval: func(v migration.View) migration.Status {
			obj := v.Get(ref.Subject())
			if obj == nil {
				return stands(migration.Pending, "it does not exist")
			}
			s := kyma.InstanceOf(obj)
			switch {
			case s.Ready.True() && s.Provisioned:
				return migration.Status{State: migration.Met}
			case s.FailedForGood():
				return stands(migration.Failed, s.Failed.String())
			case s.Lost(brokerStart(v.List(broker.GroupKind, broker.Namespace))):
				return stands(migration.Failed, "application-broker was restarted during the operation, and has no record of it")
			case s.Ready.Status == "":
				return migration.Status{Message: "it has no status yet", Note: "Check that Service Catalog's controller-manager runs."}
			case s.Unknown:
				// It is still waited for: the rollback creates it again, which helps
				// only if application-broker knows the Application by then.
				return migration.Status{
					Message: unknown + ": " + s.Ready.String(),
					Note:    "Check that an Application offers its service, and run the job again. If this error stays, restart application-broker, and run the job again.",
					Command: restart,
				}
			case s.Operation == kyma.Deprovision:
				return migration.Status{Message: s.Ready.String(), Note: "The log of application-broker says why. If it does not end, restart application-broker, and run the job again.", Command: restart}
			}
			return stands(migration.Pending, s.Ready.String())
		},
	}
}

// unknown is why an instance is neither provisioned nor deprovisioned.
const unknown = "application-broker did not know its Application when it was to provision it, and can neither provision nor deprovision it before a restart"

// brokerStart is when the process of application-broker began that has run for
// the longest time: what that one was told, it knows.
func brokerStart(all []*unstructured.Unstructured) time.Time {
	var oldest time.Time
	for _, pod := range all {
		if !kyma.OfApplicationBroker(pod) || kyma.Ended(pod) {
			continue
		}
		if start := k8sutil.PodStart(pod); oldest.IsZero() || start.Before(oldest) {
			oldest = start
		}
	}
	return oldest
}

// activated is met when an EventActivation, the Knative Subscription, and the
// label of the namespace are there.
func (c checks) activated(namespace string, e expectation) migration.Condition {
	activation, links := migration.SubjectOf(kyma.EventActivation, namespace, e.Activation), c.links()
	labelled := migration.Subject{GroupKind: namespaces.GroupKind(), Name: namespace}
	pending := func(format string, args ...any) migration.Status {
		return migration.Status{Message: fmt.Sprintf(format, args...), Note: "The log of application-broker says why.", Command: c.options.logs()}
	}
	return migration.Condition{
		Text: fmt.Sprintf("the events of %s to get to namespace %s", e.Application, namespace),
		On:   []migration.Subject{activation, links, labelled}, Timeout: c.options.activationTimeout,
		Eval: func(v migration.View) migration.Status {
			if obj := v.Get(activation); obj == nil || obj.GetDeletionTimestamp() != nil {
				return pending("there is no %s", activation)
			}
			switch n := linksOf(v, links, pair{e.Application, namespace}); n {
			case 1:
			case 0:
				return pending("no Knative Subscription in %s brings them", links.Namespace)
			default:
				return migration.Status{
					State: migration.Failed, Message: fmt.Sprintf("%d Knative Subscriptions in %s bring them, each of them each event", n, links.Namespace),
					Note: "Delete all but one of them. To see them:", Command: showLinks(links.Namespace, pair{e.Application, namespace}),
				}
			}
			if obj := v.Get(labelled); obj != nil && obj.GetLabels()[kyma.InjectionLabel] == "" {
				return pending("the namespace has no label %s", kyma.InjectionLabel)
			}
			return migration.Status{State: migration.Met}
		},
	}
}

// links are the Knative Subscriptions of all Applications.
func (c checks) links() migration.Subject {
	return migration.Subject{GroupKind: kyma.ChannelSubscription, Namespace: c.options.integrationNamespace}
}

func linksOf(v migration.View, in migration.Subject, p pair) int {
	n := 0
	for _, link := range v.List(in.GroupKind, in.Namespace) {
		if pairOf(link) == p && link.GetDeletionTimestamp() == nil {
			n++
		}
	}
	return n
}

// ready is met when the condition Ready of an object holds. What vanishes while
// it is waited for never will be.
func (c checks) ready(ref migration.Subject, timeout time.Duration, command string) migration.Condition {
	var seen atomic.Bool
	return migration.Condition{
		Text: fmt.Sprintf("%s to be ready", ref), On: []migration.Subject{ref}, Timeout: timeout,
		Eval: func(v migration.View) migration.Status {
			obj := v.Get(ref)
			switch {
			case obj == nil && seen.Load():
				advice := again("Find out who deletes it, and run the job again.")
				return migration.Status{State: migration.Failed, Message: "it was deleted meanwhile", Note: advice.Note, Command: advice.Command}
			case obj == nil:
				return migration.Status{Message: "it does not exist", Command: command}
			}
			seen.Store(true)
			is, failed := k8sobject.ConditionOf(obj, "Ready"), k8sobject.ConditionOf(obj, "Failed")
			switch {
			case is.True() && k8sobject.ReadinessOf(obj).Current && obj.GetDeletionTimestamp() == nil:
				return migration.Status{State: migration.Met}
			case failed.True():
				return migration.Status{State: migration.Failed, Message: failed.String(), Command: command}
			case is.Status == "":
				return migration.Status{Message: "it has no status yet", Command: command}
			}
			return migration.Status{Message: is.String(), Command: command}
		},
	}
}

// single is met when exactly one Knative Subscription brings the events of an
// Application to a namespace: application-broker may have made one in addition.
func (c checks) single(link *unstructured.Unstructured) migration.Condition {
	in, p := c.links(), pairOf(link)
	return migration.Condition{
		Text: fmt.Sprintf("a single Knative Subscription for the events of %s", p.application), On: []migration.Subject{in}, Timeout: c.options.activationTimeout,
		Eval: func(v migration.View) migration.Status {
			if n := linksOf(v, in, p); n > 1 {
				advice := again("application-broker has made one meanwhile. Run the job again.")
				return migration.Status{
					State: migration.Failed, Message: fmt.Sprintf("%d of them bring the events of %s to namespace %s", n, p.application, p.namespace),
					Note: advice.Note, Command: advice.Command,
				}
			}
			return migration.Status{State: migration.Met}
		},
	}
}
