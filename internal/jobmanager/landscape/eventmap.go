package landscape

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/kyma/eventpath"
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

// Map says which event reaches whom.
type Map struct {
	Applications []Source `json:"applications"`
	Flows        []Flow   `json:"flows"`
}

// MapOf makes the map; namespace "" takes them all.
func MapOf(l *Landscape, namespace string) *Map {
	m := &Map{Applications: []Source{}, Flows: []Flow{}}
	paths := map[string]Path{}
	for _, app := range l.applications.sorted() {
		paths[app.GetName()] = l.path(app.GetName())
		m.Applications = append(m.Applications, Source{Name: app.GetName(), Path: paths[app.GetName()]})
	}
	flows := map[delivery]*Flow{}
	at := func(key delivery, subscriber string) *Flow {
		if key.address == "" {
			key.address = subscriber
		}
		if flows[key] == nil {
			flows[key] = &Flow{Application: key.source, EventType: key.eventType, Version: key.version, Namespace: key.namespace, Subscriber: subscriber}
		}
		return flows[key]
	}
	for _, sub := range l.subscriptions.sorted() {
		if namespace != "" && sub.GetNamespace() != namespace || !kyma.LegacySubscription(sub) {
			continue
		}
		at(l.deliveryOfSubscription(sub), redact.URL(str(sub, "spec", "endpoint"))).Before = Route{Object: sub.GetName(), Problem: redact.URLs(l.beforeProblem(sub))}
	}
	for _, t := range l.triggers.sorted() {
		if namespace != "" && t.GetNamespace() != namespace {
			continue
		}
		key, known := l.deliveryOf(t)
		if !known {
			key.address = "Trigger " + t.GetName() // stands for itself
		}
		at(key, subscriberOf(t)).After = Route{Object: t.GetName(), Problem: redact.URLs(l.afterProblem(t, key.source))}
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

func (l *Landscape) path(application string) Path {
	service, pods := l.serviceOf(application), l.podsBy[application]
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

func (l *Landscape) beforeProblem(sub *unstructured.Unstructured) string {
	bus := l.deployments.get(kyma.SystemNamespace, kyma.EventPublishService)
	switch {
	case sub.GetDeletionTimestamp() != nil:
		return "is being deleted"
	case bus == nil || replicas(bus) == 0:
		return "the Event Bus is down"
	}
	return ""
}

func (l *Landscape) afterProblem(t *unstructured.Unstructured, source string) string {
	r := kyma.ReadinessOf(t)
	switch {
	case l.brokers.get(t.GetNamespace(), brokerOf(t)) == nil:
		return "no Broker"
	case !r.OK():
		return "not ready"
	case source == "":
		return ""
	}
	switch why := l.linkOf(source, t.GetNamespace()).Brings(); why.Defect {
	case "":
	case eventpath.LinkMissing:
		return "not linked"
	case eventpath.LinkTwice:
		return "linked twice"
	case eventpath.LinkElsewhere:
		return "linked elsewhere"
	default:
		return "link not ready"
	}
	switch why := l.sourceOf(source).TakesEvents(); why.Defect {
	case "":
	case eventpath.HTTPSourceMissing:
		return "no HTTPSource"
	default:
		return "HTTPSource takes no events"
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
