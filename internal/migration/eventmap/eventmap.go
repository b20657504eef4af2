// Package eventmap says which event of which Application reaches which subscriber:
// before, by Kyma Subscriptions of the Event Bus, and after, by Triggers of the mesh.
package eventmap

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
)

// Path is the way an Application's events take now.
type Path string

const (
	PathEventBus Path = "event-bus"
	PathMesh     Path = "mesh"
	// PathBoth: the event-service is being replaced, pod by pod.
	PathBoth Path = "both"
	// PathNone: there is no event-service.
	PathNone Path = "none"
)

// Route is how one kind of event gets to one subscriber on one of the two paths.
type Route struct {
	// Object is the Kyma Subscription or the Trigger; "" if there is none.
	Object string `json:"object,omitempty"`
	// Problem says why nothing takes this route, "" if events do, or would.
	Problem string `json:"problem,omitempty"`
}

// Flow is one kind of event of one Application, to one subscriber.
type Flow struct {
	Application string `json:"application"`
	EventType   string `json:"eventType"`
	Version     string `json:"version"`
	Namespace   string `json:"namespace"`
	Subscriber  string `json:"subscriber"`
	Before      Route  `json:"before"`
	After       Route  `json:"after"`
}

// Event is the kind of event in one word.
func (f Flow) Event() string {
	return cmp.Or(f.EventType, "any") + "." + cmp.Or(f.Version, "any")
}

// Source is an Application in the map.
type Source struct {
	Name string `json:"name"`
	Path Path   `json:"path"`
}

// What stops the events of a flow.
const (
	problemTerminating  = "is being deleted"
	problemBusDown      = "the Event Bus is down"
	problemNoTrigger    = "no Trigger, and the mesh takes the events"
	problemNoBroker     = "no Broker"
	problemNotReady     = "not ready"
	problemNotLinked    = "not linked"
	problemLinkedTwice  = "linked twice"
	problemElsewhere    = "linked elsewhere"
	problemLinkNotReady = "link not ready"
	problemNoSource     = "no HTTPSource"
	problemSource       = "HTTPSource takes no events"
)

// Map says which event reaches whom.
type Map struct {
	Applications []Source `json:"applications"`
	Flows        []Flow   `json:"flows"`
}

// New makes the map; namespace "" takes them all.
func New(in *inventory.Inventory, namespace string) *Map {
	m := &Map{Applications: []Source{}, Flows: []Flow{}}
	paths := map[string]Path{}
	for _, app := range in.Applications.Sorted() {
		paths[app.GetName()] = path(in, app.GetName())
		m.Applications = append(m.Applications, Source{Name: app.GetName(), Path: paths[app.GetName()]})
	}
	flows := map[inventory.Delivery]*Flow{}
	at := func(key inventory.Delivery, subscriber string) *Flow {
		if key.Address == "" {
			key.Address = subscriber
		}
		if flows[key] == nil {
			flows[key] = &Flow{Application: key.Source, EventType: key.EventType, Version: key.Version, Namespace: key.Namespace, Subscriber: subscriber}
		}
		return flows[key]
	}
	for _, sub := range in.Subscriptions.Sorted() {
		if namespace != "" && sub.GetNamespace() != namespace || !kyma.LegacySubscription(sub) {
			continue
		}
		at(in.DeliveryOfSubscription(sub), redact.URL(inventory.Field(sub, "spec", "endpoint"))).Before = Route{Object: sub.GetName(), Problem: redact.URLs(beforeProblem(in, sub))}
	}
	for _, t := range in.Triggers.Sorted() {
		if namespace != "" && t.GetNamespace() != namespace {
			continue
		}
		key, known := in.DeliveryOf(t)
		if !known {
			key.Address = "Trigger " + t.GetName() // it has no address of its own
		}
		at(key, subscriberOf(t)).After = Route{Object: t.GetName(), Problem: redact.URLs(afterProblem(in, t, key.Source))}
	}
	for _, f := range flows {
		m.Flows = append(m.Flows, *f)
	}
	slices.SortFunc(m.Flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Application, b.Application), cmp.Compare(a.EventType, b.EventType), cmp.Compare(a.Version, b.Version),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Subscriber, b.Subscriber))
	})
	for _, f := range m.Flows {
		if _, known := paths[f.Application]; !known {
			paths[f.Application] = PathNone
			m.Applications = append(m.Applications, Source{Name: cmp.Or(f.Application, "any"), Path: PathNone})
		}
	}
	return m
}

func path(in *inventory.Inventory, application string) Path {
	service, pods := in.EventServiceOf(application), in.PodsOf(application)
	switch {
	case service.Deployment == nil && len(pods) == 0:
		return PathNone
	case service.Switched().OK():
		return PathMesh
	case service.Deployment != nil && eventpath.PostsToMesh(service.Deployment) || slices.ContainsFunc(pods, eventpath.PostsToMesh):
		return PathBoth
	}
	return PathEventBus
}

func beforeProblem(in *inventory.Inventory, sub *unstructured.Unstructured) string {
	bus := in.Deployments.Get(kyma.SystemNamespace, kyma.EventPublishService)
	switch {
	case sub.GetDeletionTimestamp() != nil:
		return problemTerminating
	case bus == nil || inventory.Replicas(bus) == 0:
		return problemBusDown
	}
	return ""
}

func afterProblem(in *inventory.Inventory, t *unstructured.Unstructured, source string) string {
	r := k8sobject.ReadinessOf(t)
	switch {
	case in.Brokers.Get(t.GetNamespace(), inventory.BrokerOf(t)) == nil:
		return problemNoBroker
	case !r.OK():
		return problemNotReady
	case source == "":
		return ""
	}
	switch why := in.LinkOf(source, t.GetNamespace()).Brings(); why.Defect {
	case "":
	case eventpath.LinkMissing:
		return problemNotLinked
	case eventpath.LinkTwice:
		return problemLinkedTwice
	case eventpath.LinkElsewhere:
		return problemElsewhere
	default:
		return problemLinkNotReady
	}
	switch why := in.SourceOf(source).TakesEvents(); why.Defect {
	case "":
	case eventpath.HTTPSourceMissing:
		return problemNoSource
	default:
		return problemSource
	}
	return ""
}

// subscriberOf is where a Trigger's events go, for people.
func subscriberOf(t *unstructured.Unstructured) string {
	if uri := kyma.SubscriberOf(t); uri != "" {
		return redact.URL(uri)
	}
	if kind := inventory.Field(t, "spec", "subscriber", "ref", "kind"); kind != "" { // its controller has not resolved it
		ns := cmp.Or(inventory.Field(t, "spec", "subscriber", "ref", "namespace"), t.GetNamespace())
		return kind + " " + ns + "/" + inventory.Field(t, "spec", "subscriber", "ref", "name")
	}
	return ""
}

// subscribers are the ends of the flows, by namespace, each once.
func (m *Map) subscribers() (namespaces []string, of map[string][]string) {
	sets := map[string]map[string]bool{}
	for _, f := range m.Flows {
		if sets[f.Namespace] == nil {
			sets[f.Namespace] = map[string]bool{}
		}
		sets[f.Namespace][f.Subscriber] = true
	}
	of = map[string][]string{}
	for ns, set := range sets {
		of[ns] = slices.Sorted(maps.Keys(set))
	}
	return slices.Sorted(maps.Keys(of)), of
}
