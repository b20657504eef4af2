package takeover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Install is the command that installs ours beside Kyma's, without starting it.
const Install = "helm template eventing-next charts/eventing-manager --namespace kyma-system --include-crds --set resourcePrefix=eventing-next,replicas=0 | kubectl apply --server-side --force-conflicts -f -"

const (
	kindEventing = "eventings.operator.kyma-project.io"
	kindNATS     = "nats.operator.kyma-project.io"
	maxNamed     = 10
)

// findings are what a person should know. One of severity error refuses every step.
func findings(s *snapshot, o options) (all []migration.Finding) {
	add := func(severity migration.Severity, id, object, problem, note, command string) {
		all = append(all, migration.Finding{ID: id, Severity: severity, Object: object, Problem: problem, Note: note, Command: command})
	}
	owners(s, o, add) // who may have deleted what is missing
	before := len(all)
	whole(s, o, add)
	if len(all) > before {
		return all // what follows would only repeat it
	}
	theirModules(s, add)
	theirNATSModule(s, o, add)
	ours(s, add)
	for _, sub := range s.subscriptions {
		object := "Subscription " + sub.key()
		switch {
		case sub.DeletionTimestamp != nil:
			// On the way, the next steps may have to start who removes its finalizer.
			severity, note := migration.Warning, "The operator that is started next removes its finalizer."
			if s.policy == nil {
				severity, note = migration.Error, "Wait until it is gone. The operator that runs removes its finalizer."
			}
			add(severity, "subscription-is-deleted", object, "it is being deleted", note, migration.Kubectl(sub.Namespace, "get", "subscriptions.eventing.kyma-project.io", sub.Name))
		case len(sub.problems) > 0 && o.to == Over:
			add(migration.Error, "subscription-not-served", object, "ours cannot serve it: "+strings.Join(sub.problems, "; "), "Change it, or delete it, before anything else is done.", migration.Kubectl(sub.Namespace, "edit", "subscriptions.eventing.kyma-project.io", sub.Name))
		}
	}
	streams(s, add)
	sinks(s, o, add)
	return all
}

// sinks names Subscriptions that ours serves and Kyma's operator does not: it wants the Service of
// a sink to exist.
func sinks(s *snapshot, o options, add adder) {
	is := s.state()
	for _, sub := range s.subscriptions {
		missing := s.missingService(sub)
		if missing == "" || sub.DeletionTimestamp != nil || len(sub.problems) > 0 {
			continue
		}
		none := s.theirs != nil && slices.ContainsFunc(sub.theirConsumers(), func(name string) bool { return !has(s.theirs.Consumers, name) })
		severity, problem := migration.Warning, fmt.Sprintf("Service %s of its sink does not exist, and Kyma's operator delivers none of its events", missing)
		if o.to == Back && none && !(is.TheirPublisher && !is.ServiceIsOurs) {
			severity, problem = migration.Error, fmt.Sprintf("Service %s of its sink does not exist: Kyma's operator makes no consumer for it then, and its NATS would drop its events", missing)
		}
		namespace, name, _ := strings.Cut(missing, "/")
		add(severity, "sink-without-service", "Subscription "+sub.key(), problem, "Create the Service, or delete the Subscription.", migration.Kubectl(namespace, "get", "service", name))
	}
}

type adder func(severity migration.Severity, id, object, problem, note, command string)

// needsTheirs tells whether Kyma's operator has to run once more. Who goes over needs it until its
// NATS is empty, and does not miss it afterwards.
func (s *snapshot) needsTheirs(to Direction) bool {
	is := s.state()
	return to == Back || is.TheirPublisher || !is.TheirDrained
}

// whole is what there has to be at all.
func whole(s *snapshot, o options, add adder) {
	object := "Eventing " + s.namespace + "/" + theirName
	switch {
	case s.eventing == nil:
		add(migration.Error, "no-eventing", object, "it does not exist: there is nothing to take over", "To install eventing where there is none, see docs/eventing/README.md.", "kubectl eventing check")
	case s.eventing.GetDeletionTimestamp() != nil:
		add(migration.Error, "eventing-is-deleted", object, "it is being deleted. It is served as long as a Subscription exists, and nothing stops its deletion", "Recreate it, as docs/eventing/coming-from-kyma.md says below \"An Eventing that is being deleted\". First save it:", migration.Kubectl(s.namespace, "get", kindEventing, theirName, "-o", "jsonpath={.spec}")+" > eventing-spec.json")
	case s.theirOperator == nil && s.needsTheirs(o.to):
		add(migration.Error, "no-kyma-operator", "Deployment "+s.namespace+"/"+theirOperator, "Kyma's eventing-manager is not there, and nobody else delivers what its NATS holds", "Apply the manifest of Kyma's module eventing again.", migration.Kubectl(s.namespace, "get", "deployment", theirOperator, "--show-labels"))
	case s.service == nil || s.theirPublisher == nil && s.needsTheirs(o.to):
		add(migration.Error, "no-kyma-publisher", "Deployment "+s.namespace+"/"+theirPublisher, "Kyma's publisher, or its Service, is not there", "Wait until Kyma's operator has made it.", migration.Kubectl(s.namespace, "get", "deployment,service", theirPublisher))
	}
}

// theirModules is what works against each step.
func theirModules(s *snapshot, add adder) {
	if kind := backendType(s.eventing); kind != "NATS" {
		add(migration.Error, "backend-not-nats", "Eventing "+s.namespace+"/"+theirName, fmt.Sprintf("its backend is %q: only NATS can be taken over", kind), "SAP Event Mesh is not supported.", migration.Kubectl(s.namespace, "get", kindEventing, theirName, "-o", "yaml"))
	}
	for _, other := range s.eventings {
		add(migration.Error, "another-eventing", "Eventing "+other, "our operator serves the oldest Eventing of the cluster, and may serve this one", "Delete all but that in "+s.namespace+".", migration.CommandLine("kubectl", "get", kindEventing, "--all-namespaces"))
	}
}

// theirNATSModule is what becomes of Kyma's NATS, and of the events that it holds.
func theirNATSModule(s *snapshot, o options, add adder) {
	needed, object := s.needsTheirs(o.to), "NATS "+s.namespace+"/"+theirNATS
	get := migration.Kubectl(s.namespace, "get", kindNATS, theirNATS)
	if s.theirServers == nil {
		add(migration.Warning, "no-kyma-nats", "StatefulSet "+s.namespace+"/"+theirNATS, "Kyma's NATS is not there: it holds no event", "", "")
	}
	switch {
	case needed && !s.natsIsServed:
		add(migration.Error, "no-nats-kind", "CustomResourceDefinition "+kindNATS, "it does not exist: when Kyma's operator starts, it deletes its publisher then, and the Service that clients know", "Enable Kyma's module nats again.", migration.CommandLine("kubectl", "get", "customresourcedefinition", kindNATS))
	case needed && s.nats == nil && (o.to == Back || s.theirServers != nil):
		add(migration.Error, "no-nats", object, "it does not exist, and Kyma's operator delivers nothing without it", "Apply the NATS of Kyma's module nats again.", get)
	case s.nats == nil || s.nats.GetDeletionTimestamp() == nil:
	case o.to == Back:
		add(migration.Error, "nats-is-deleted", object, "it is being deleted, and its volumes with it: Kyma's publisher must not accept events again", "Stay with ours. To go back, wait until it is gone, and apply it again.", get)
	case needed:
		add(migration.Warning, "nats-is-deleted", object, "it is being deleted. As soon as nats-manager cannot connect to its servers, it deletes their volumes with all events", "Go over now, and restart no pod of Kyma's NATS before that. It cannot be restored.", "")
	default:
		add(migration.Warning, "nats-is-deleted", object, "it is being deleted. It stays as long as its stream has consumers, which nobody removes any more", "It holds no event. To let it go, with its volumes, stop its servers:", migration.Kubectl(s.namespace, "scale", "statefulset", theirNATS, "--replicas=0"))
	}
}

// ours is what is wrong with what is installed of ours.
func ours(s *snapshot, add adder) {
	object := "Deployment of our operator in namespace " + s.namespace
	switch {
	case s.names == "" && s.oursIsServed:
		add(migration.Error, "half-applied", object, "the definitions of the kinds are ours, but our operator is not installed: a manifest was applied over Kyma's in part", "Install ours with names of its own.", Install)
	case s.names == "":
		add(migration.Error, "ours-not-installed", object, "our operator is not installed", "Install it with names of its own, and without starting it.", Install)
	case s.names == backend.DefaultPrefix:
		add(migration.Error, "ours-has-their-names", "Deployment "+s.namespace+"/"+s.ourOperator.GetName(), fmt.Sprintf("our operator has the prefix %s, so that its objects have the names of Kyma's", s.names), "Install ours with another prefix.", Install)
	case !s.oursIsServed:
		add(migration.Error, "definitions-not-ours", "CustomResourceDefinition "+subscriptions.GroupVersionResource.GroupResource().String(), "it is Kyma's, and our operator needs its own, which Kyma's operator can use as well", "Apply our definitions.", "kubectl apply --server-side --force-conflicts -f charts/eventing-manager/crds")
	case s.refused != nil:
		add(migration.Error, "eventing-not-valid", "Eventing "+s.namespace+"/"+theirName, "our definition refuses it: "+s.refused.Error(), "Change the field. Kyma's operator takes the change, too.", migration.Kubectl(s.namespace, "edit", kindEventing, theirName))
	}
	for _, account := range s.accountless {
		add(migration.Error, "no-account", "ServiceAccount "+s.namespace+"/"+account, "it does not exist, so that none of its pods can start", "Apply our manifest again. An account that an Eventing owns is deleted with it.", Install)
	}
	for _, account := range s.claimed {
		add(migration.Error, "account-has-an-owner", "ServiceAccount "+s.namespace+"/"+account, "an Eventing owns it, so that the garbage collector deletes it with that", "Remove the owner: our manifest was applied over an object of Kyma's.", migration.Kubectl(s.namespace, "patch", "serviceaccount", account, "--type=merge", `-p={"metadata":{"ownerReferences":null}}`))
	}
}

// streams is what is known of what the two NATS hold.
func streams(s *snapshot, add adder) {
	object := "StatefulSet " + s.namespace + "/" + theirNATS
	if s.theirsErr != nil {
		f := unread(object, s.namespace, s.theirsErr)
		add(f.Severity, f.ID, f.Object, f.Problem, f.Note, f.Command)
	}
	if s.theirs == nil {
		return
	}
	if len(s.theirs.Others) > 0 {
		add(migration.Warning, "other-streams", object, "it has other streams, which are left where they are: "+some(s.theirs.Others), "", "")
	}
	known := map[string]bool{}
	for _, sub := range s.subscriptions {
		for _, name := range sub.theirConsumers() {
			known[name] = true
		}
	}
	strange := slices.DeleteFunc(slices.Clone(s.theirs.Consumers), func(name string) bool { return known[name] })
	if len(strange) > 0 {
		add(migration.Warning, "other-consumers", object, "consumers of its stream belong to no Subscription: "+some(strange), "Kyma's operator deletes those that nobody listens to when it starts. Events that another program listens for do not come over.", "")
	}
}

func some(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// waits says why a step is none that writes: events are still being delivered.
func (s *snapshot) waits(n step) *migration.Finding {
	b, err, object, who := s.theirs, s.theirsErr, "StatefulSet "+s.namespace+"/"+theirNATS, "Kyma's operator"
	switch n {
	case awaitTheirDrain:
	case awaitOurDrain:
		b, err, object, who = s.ours, s.oursErr, "StatefulSet "+s.namespace+"/"+s.names.NATS(), "our controller"
	default:
		return nil
	}
	if b == nil {
		return unread(object, s.namespace, err)
	}
	f := &migration.Finding{
		ID: "events-are-left", Severity: migration.Deferred, Object: object,
		Problem: fmt.Sprintf("it holds %s, %s of which a sink has yet to take; %s delivers them", migration.Count(int(b.Messages), "event"), migration.Number(int(b.Waiting)), who),
		Note:    "Wait, and look at the sinks that do not take their events. To see which Subscriptions wait:", Command: "kubectl eventing subscriptions --all-namespaces",
	}
	if n == awaitTheirDrain {
		if who := s.waiting(); len(who) > 0 {
			f.Note = "Wait, and look at the sinks that do not take their events: " + some(who) + "."
		}
	}
	if given := b.GivenUp(); given > 0 {
		f.ID = "events-were-given-up"
		f.Problem = fmt.Sprintf("it holds %s that nobody waits for: Kyma's operator gives an event up after 100 times", migration.Count(int(given), "event"))
		f.Note, f.Command = "They are not delivered any more, here or there. To go on without them:", "kubectl eventing take-over run --leave-given-up"
	}
	return f
}

// waiting are the Subscriptions for which Kyma's NATS holds events, with how many.
func (s *snapshot) waiting() (all []string) {
	for _, sub := range s.subscriptions {
		var n int64
		for _, name := range sub.theirConsumers() {
			n += s.theirs.waits[name]
		}
		if n == 0 {
			continue
		}
		text := fmt.Sprintf("Subscription %s (%s)", sub.key(), migration.Count(int(n), "event"))
		if missing := s.missingService(sub); missing != "" {
			text += fmt.Sprintf(", whose Service %s does not exist", missing)
		}
		all = append(all, text)
	}
	return all
}

// unread says that nobody knows what a NATS holds. Nothing is done then: it is never taken for
// empty.
func unread(object, namespace string, err error) *migration.Finding {
	return &migration.Finding{
		ID: "nats-not-read", Severity: migration.Deferred, Object: object, Problem: fmt.Sprintf("nobody knows what it holds: %v", err),
		Note: "Its pods may be starting. Otherwise check the right to create pods/portforward.", Command: migration.Kubectl(namespace, "get", "pods"),
	}
}
