package eventpath

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
)

// Link is how the events of a source come to the Broker of a namespace: by a
// Knative Subscription that application-broker makes.
type Link struct {
	// Source is an Application, Namespace the one whose Broker gets its events.
	Source, Namespace string
	// Integration is the namespace of the HTTPSource, of its Channel and of links.
	Integration string
	// Links are all of the pair: see LinkOf.
	Links []*unstructured.Unstructured
	// Broker is the one called default in the namespace. It is only asked for its
	// address, and may be nil: a link to the name that its Service has in every
	// version of Kyma is right without it.
	Broker *unstructured.Unstructured
}

// LinkOf returns the source and the namespace that a Knative Subscription in the
// integration namespace links by its labels; false if it is no link.
func LinkOf(obj *unstructured.Unstructured) (source, namespace string, ok bool) {
	labels := k8sobject.MapAt(obj.Object, "metadata", "labels")
	source, namespace = k8sobject.Text(labels[kyma.ApplicationNameLabel]), k8sobject.Text(labels[kyma.BrokerNamespaceLabel])
	return source, namespace, source != "" && namespace != ""
}

// Brings says whether exactly one link brings the events: it is ready, it takes
// them from the Channel of the source, and it leads to the Broker of the namespace.
func (l Link) Brings() Answer { return first(l.Defects()) }

// Defects is everything for which it does not.
func (l Link) Defects() []Answer {
	if len(l.Links) == 0 {
		return []Answer{{LinkMissing, Object{},
			fmt.Sprintf("no Knative Subscription in %s brings the events of %s to namespace %s", l.Integration, l.Source, l.Namespace),
			fmt.Sprintf("Create a ServiceInstance of Application %s in namespace %s. To see its classes:", l.Source, l.Namespace),
			"kubectl -n " + l.Namespace + " get serviceclasses"}}
	}
	var all []Answer
	if len(l.Links) > 1 {
		names := make([]string, len(l.Links))
		for i, link := range l.Links {
			names[i] = link.GetName()
		}
		slices.Sort(names)
		all = append(all, Answer{LinkTwice, Object{},
			fmt.Sprintf("%d Knative Subscriptions bring the events of %s to namespace %s, each event %d times: %s", len(names), l.Source, l.Namespace, len(names), strings.Join(names, ", ")),
			"Each event arrives several times. Delete all but one of them. To see them:",
			fmt.Sprintf("kubectl -n %s get subscriptions.%s -l %s=%s,%s=%s", l.Integration,
				kyma.ChannelSubscription.Group, kyma.ApplicationNameLabel, l.Source, kyma.BrokerNamespaceLabel, l.Namespace)})
	}
	for _, link := range l.Links {
		all = append(all, l.defectsOf(link)...)
	}
	return all
}

func (l Link) defectsOf(link *unstructured.Unstructured) []Answer {
	self := of(kyma.ChannelSubscription, link)
	const recreate = "Delete it. application-broker recreates it with the right target."
	if link.GetDeletionTimestamp() != nil {
		return []Answer{{LinkNotReady, self, "is being deleted", "Wait until it is gone, then run again. application-broker recreates it.", self.describe()}}
	}
	var all []Answer
	if to, ok := l.leadsToBroker(link); !ok {
		all = append(all, Answer{LinkElsewhere, self,
			fmt.Sprintf("brings the events of %s to %s, not to the Broker of namespace %s", l.Source, to, l.Namespace),
			recreate, self.kubectl("delete")})
	}
	if from, ok := l.takesFromChannel(link); !ok {
		all = append(all, Answer{LinkElsewhere, self, fmt.Sprintf("takes events from %s, not from Channel %s/%s", from, l.Integration, l.Source), recreate, self.kubectl("delete")})
	}
	if r := k8sobject.ReadinessOf(link); !r.OK() {
		all = append(all, Answer{LinkNotReady, self, r.Problem(), "Its conditions say what is missing.", self.describe()})
	}
	return all
}

// takesFromChannel says whether a Knative Subscription subscribes to the Channel of
// the source; from is what it subscribes to.
func (l Link) takesFromChannel(link *unstructured.Unstructured) (from string, ok bool) {
	channel := k8sobject.MapAt(link.Object, "spec", "channel")
	kind, namespace := kindOf(channel), namespaceOf(channel, link)
	from = Object{kind, namespace, k8sobject.Text(channel["name"])}.String()
	return from, kind == kyma.Channel && namespace == l.Integration && channel["name"] == l.Source
}

// leadsToBroker says whether the subscriber of a Knative Subscription is the Broker
// "default" of the namespace; to is what it is, without what may be secret in it.
//
// v1alpha1 and v1 have a reference, a URI, or a URI relative to the reference.
// Knative 0.10 also took the fields of the reference beside the URI.
func (l Link) leadsToBroker(link *unstructured.Unstructured) (to string, ok bool) {
	subscriber := k8sobject.MapAt(link.Object, "spec", "subscriber")
	uri := k8sobject.Text(subscriber["uri"])
	ref := k8sobject.MapAt(subscriber, "ref")
	if ref == nil && k8sobject.Text(subscriber["kind"]) != "" {
		ref = subscriber
	}
	if ref != nil {
		kind, namespace, name := kindOf(ref), namespaceOf(ref, link), k8sobject.Text(ref["name"])
		to = Object{kind, namespace, name}.String()
		rooted := uri == "" || uri == "/"
		broker := kind == knative.Broker && name == kyma.DefaultBroker
		service := kind == schema.GroupKind{Kind: "Service"} && name == kyma.DefaultBrokerService
		return to, rooted && namespace == l.Namespace && (broker || service)
	}
	if uri == "" {
		return "nothing", false
	}
	u, err := url.Parse(uri)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "an address that is no absolute URL", false
	}
	if l.Broker != nil && l.Broker.GetDeletionTimestamp() == nil {
		// Later Knative has one ingress for all Brokers, which are told by the path.
		if address := k8sobject.Text(k8sobject.MapAt(l.Broker.Object, "status", "address")["url"]); address != "" && strings.TrimSuffix(address, "/") == strings.TrimSuffix(uri, "/") {
			return address, true
		}
	}
	return fmt.Sprintf("%q", u.Host), hostIs(u, kyma.DefaultBrokerService, l.Namespace) && rooted(u)
}

func kindOf(reference map[string]any) schema.GroupKind {
	gv, err := schema.ParseGroupVersion(k8sobject.Text(reference["apiVersion"]))
	if err != nil {
		return schema.GroupKind{}
	}
	return schema.GroupKind{Group: gv.Group, Kind: k8sobject.Text(reference["kind"])}
}

func namespaceOf(reference map[string]any, obj *unstructured.Unstructured) string {
	if ns := k8sobject.Text(reference["namespace"]); ns != "" {
		return ns
	}
	return obj.GetNamespace()
}

// hostIs says whether a URL leads to a Service by one of the names that cluster DNS
// gives it everywhere; any port may be named.
func hostIs(u *url.URL, service, namespace string) bool {
	host := strings.ToLower(u.Hostname())
	return slices.Contains([]string{
		service + "." + namespace, service + "." + namespace + ".svc", service + "." + namespace + ".svc.cluster.local",
	}, host)
}

// rooted says whether a URL is one of a host and nothing in it.
func rooted(u *url.URL) bool {
	return (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.User == nil
}
