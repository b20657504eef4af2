package trigger

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration"
)

// reason is why something must wait; the zero value says that it need not.
type reason struct{ problem, hint string }

func (r reason) holds() bool { return r.problem == "" }

// meshTakes says whether the mesh takes the events of a source and brings them
// to a namespace: the first half of what must hold before a Subscription goes.
func (s *snapshot) meshTakes(key pair, o options) reason {
	source := s.sources[key.source]
	if source == nil {
		return reason{
			fmt.Sprintf("Application %s has no HTTPSource", key.source),
			"run httpsource-sync first",
		}
	}
	name := source.GetName()
	for _, part := range []struct {
		kind migration.Kind
		what string
		obj  *unstructured.Unstructured
	}{
		{s.kinds.httpSource, "", source},
		{s.kinds.channel, "", s.mesh.channels[name]},
		{s.kinds.service, "the adapter, ", s.mesh.services[name]},
	} {
		ref := part.kind.Ref(o.integrationNamespace, name)
		hint := part.kind.Describe(ref.Namespace, ref.Name)
		if part.obj == nil {
			return reason{fmt.Sprintf("%s%s does not exist", part.what, ref), "run httpsource-sync, which waits for it"}
		}
		if why := unready(ref, part.obj); why != "" {
			return reason{part.what + why, hint}
		}
	}
	links := s.links[key]
	switch len(links) {
	case 0:
		return reason{
			fmt.Sprintf("no Knative Subscription brings the events of %s to namespace %s", key.source, key.namespace),
			"run serviceinstance-recreate first: application-broker makes it for a ServiceInstance of the Application",
		}
	case 1:
		ref := s.kinds.link.RefTo(links[0])
		if why := unready(ref, links[0]); why != "" {
			return reason{why, s.kinds.link.Describe(ref.Namespace, ref.Name)}
		}
		return reason{}
	default:
		names := make([]string, len(links))
		for i, link := range links {
			names[i] = link.GetName()
		}
		return reason{
			fmt.Sprintf("%d Knative Subscriptions bring the events of %s to namespace %s, each event %d times: %s",
				len(links), key.source, key.namespace, len(links), strings.Join(names, ", ")),
			fmt.Sprintf("delete all but one of them: kubectl -n %s get subscriptions.%s -l %s=%s,%s=%s", o.integrationNamespace,
				s.kinds.link.Group, kyma.ApplicationNameLabel, key.source, kyma.BrokerNamespaceLabel, key.namespace),
		}
	}
}

// switched says whether everything that posts the events of a source posts them
// to the mesh.
func (s *snapshot) switched(source string, o options) reason {
	name := kyma.EventServiceName(source)
	ref := migration.Ref{Resource: deployments, Namespace: o.integrationNamespace, Name: name}
	hint := "it does once the component application-connector is upgraded; run again then"
	deployment := s.mesh.eventServices[source]
	pod, legacy := s.mesh.legacyPods[source]
	switch {
	case deployment == nil && legacy:
		return reason{fmt.Sprintf("Pod %s/%s still posts to the Event Bus, and has no Deployment any more", o.integrationNamespace, pod), "wait until it has ended, and run again"}
	case deployment == nil && s.applications[source].withoutEventService:
		// Nothing was ever installed that could post.
		return reason{}
	case deployment == nil:
		return reason{fmt.Sprintf("%s does not exist, so that nothing says where the events go", ref), hint}
	case !slices.Contains(kyma.MeshSources(deployment), source):
		return reason{fmt.Sprintf("%s posts to the Event Bus still", ref), hint}
	}
	if why := rolledOut(deployment); why != "" {
		return reason{fmt.Sprintf("%s %s", ref, why), fmt.Sprintf("wait for it, and run again: kubectl -n %s rollout status deployment/%s", ref.Namespace, ref.Name)}
	}
	if legacy {
		return reason{fmt.Sprintf("Pod %s/%s of the earlier event-service still runs", o.integrationNamespace, pod), "wait until it has ended, and run again"}
	}
	return reason{}
}

// rolledOut says what is missing until every pod of a Deployment is one of its
// present revision.
func rolledOut(deployment *unstructured.Unstructured) string {
	status := kyma.MapAt(deployment.Object, "status")
	number := func(key string) int64 { n, _ := status[key].(int64); return n }
	want := replicas(deployment)
	switch {
	case number("observedGeneration") < deployment.GetGeneration():
		return "has changed, and its controller has not caught up"
	case number("updatedReplicas") < want:
		return fmt.Sprintf("is being updated: %d of %d pods are new", number("updatedReplicas"), want)
	case number("replicas") > number("updatedReplicas"):
		return fmt.Sprintf("is being updated: %d old pods are left", number("replicas")-number("updatedReplicas"))
	case number("availableReplicas") < want:
		return fmt.Sprintf("is being updated: %d of %d pods are available", number("availableReplicas"), want)
	}
	return ""
}

// legacyLink returns the Knative Subscription that the Event Bus made for a Kyma
// Subscription, nil if there is none.
func (b *bus) legacyLink(sub *unstructured.Unstructured) *unstructured.Unstructured {
	return b.links[kyma.LegacySubscriptionName(sub.GetNamespace(), sub.GetName())]
}

// waiting is how many events wait to be delivered to a Subscription; why is set
// if that is not known. Without a Knative Subscription nothing is delivered.
func (b *bus) waiting(sub *unstructured.Unstructured) (n uint64, why string) {
	link := b.legacyLink(sub)
	if link == nil {
		return 0, ""
	}
	return b.inFlight.of(channelOf(link), kyma.NATSDurable(link.GetUID()))
}

// channelOf is the channel in NATS Streaming of a Kyma Subscription, "" if nothing
// is delivered to it.
func (b *bus) channelOf(sub *unstructured.Unstructured) string {
	link := b.legacyLink(sub)
	if link == nil {
		return ""
	}
	return channelOf(link)
}

// channelOf is the channel in NATS Streaming of a Knative Subscription.
func channelOf(link *unstructured.Unstructured) string {
	return kyma.NATSChannel(link.GetNamespace(), kyma.Text(kyma.MapAt(link.Object, "spec", "channel")["name"]))
}

// unready says why an object does not count as ready; "" if it does.
func unready(ref migration.Ref, obj *unstructured.Unstructured) string {
	r := kyma.ReadinessOf(obj)
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return fmt.Sprintf("%s is being deleted", ref)
	case r.OK():
		return ""
	}
	return fmt.Sprintf("%s %s", ref, r.Problem())
}
