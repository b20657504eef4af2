package eventpath

import (
	"fmt"
	"net/url"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
)

// UpgradeConnector says what to do about an event-service that is missing or does not post to the
// mesh.
const UpgradeConnector = "Upgrade application-connector, then run again. application-operator upgrades the release."

// EventService is the event-service of an Application.
type EventService struct {
	Application, Namespace string
	// Deployment has the name of the event-service; nil: there is none. One of another
	// name counts by its Pods: these are what posts.
	Deployment *unstructured.Unstructured
	// Former are its Pods that are not proven to post to the mesh: see FormerPods.
	Former []Answer
	// Optional says that no Deployment is no defect: nothing was ever installed for
	// the Application, or nothing is to be.
	Optional bool
}

// Switched says whether everything that posts the events of the Application posts
// them to the mesh: its Deployment carries the --eventMeshURL of its own adapter,
// is fully rolled out, and no Pod, terminating ones included, posts elsewhere.
//
// This is the strict direction, a proof: what is unknown has not switched.
func (s EventService) Switched() Answer { return first(s.Defects()) }

// Defects is everything for which it has not.
func (s EventService) Defects() []Answer {
	self := Object{Deployment, s.Namespace, kyma.EventServiceName(s.Application)}
	operator := "kubectl -n " + s.Namespace + " logs statefulset/application-operator"
	if s.Deployment == nil {
		all := s.Former
		if len(all) == 0 && !s.Optional {
			all = []Answer{{EventServiceMissing, self, "does not exist, so that nothing says where the events go", UpgradeConnector, operator}}
		}
		return all
	}
	if why := postsElsewhere(s.Deployment, s.Application); why != "" {
		return []Answer{{EventServiceNotSwitched, self, why, UpgradeConnector, operator}}
	}
	all := s.Former
	if why := notRolledOut(s.Deployment); why != "" {
		rollout := Answer{EventServiceRollout, self, why, "Wait until it is rolled out, then run again.", self.kubectl("rollout status")}
		if Paused(s.Deployment) {
			rollout.Problem, rollout.Note, rollout.Command = why+", and is paused", "Somebody has paused it. End that, then run again.", self.kubectl("rollout resume")
		}
		all = append([]Answer{rollout}, all...)
	}
	return all
}

// Paused says whether Pods of a Deployment have to be replaced, and somebody has paused that. Pods
// of its present revision that are not available wait for something else.
func Paused(deployment *unstructured.Unstructured) bool {
	paused, _ := k8sobject.MapAt(deployment.Object, "spec")["paused"].(bool)
	updated := inStatus(deployment, "updatedReplicas")
	return paused && (updated < wanted(deployment) || inStatus(deployment, "replicas") > updated)
}

// wanted is how many Pods a Deployment is to have.
func wanted(deployment *unstructured.Unstructured) int64 {
	if n, ok := k8sobject.Integer(k8sobject.MapAt(deployment.Object, "spec")["replicas"]); ok {
		return n
	}
	return 1 // the API server's default
}

// inStatus is a number in the status of a Deployment; 0 if it is not there.
func inStatus(deployment *unstructured.Unstructured, key string) int64 {
	n, _ := k8sobject.Integer(k8sobject.MapAt(deployment.Object, "status")[key])
	return n
}

// notRolledOut says what is missing until every Pod of a Deployment is one of its
// present revision, and takes events.
func notRolledOut(deployment *unstructured.Unstructured) string {
	number := func(key string) int64 { return inStatus(deployment, key) }
	want := wanted(deployment)
	switch {
	case deployment.GetDeletionTimestamp() != nil:
		return "is being deleted"
	case number("observedGeneration") < deployment.GetGeneration():
		return "has changed, and its controller has not caught up"
	case number("updatedReplicas") < want:
		return fmt.Sprintf("is being updated: %d of %d pods are new", number("updatedReplicas"), want)
	case number("replicas") > number("updatedReplicas"):
		return fmt.Sprintf("is being updated, and still has %d of its old pods", number("replicas")-number("updatedReplicas"))
	case number("availableReplicas") < want:
		return fmt.Sprintf("is being updated: %d of %d pods are available", number("availableReplicas"), want)
	}
	return ""
}

// postsElsewhere says why a Deployment or a Pod is not proven to post the events of
// a source to the mesh; "" if it is. Each --eventMeshURL in it must be the URL of
// the adapter of the source, and the container of the event-service must have one.
func postsElsewhere(obj *unstructured.Unstructured, source string) string {
	spec := k8sobject.MapAt(obj.Object, "spec")
	if template := k8sobject.MapAt(spec, "template"); template != nil {
		spec = k8sobject.MapAt(template, "spec")
	}
	const lacks = "does not carry --eventMeshURL, so it posts to the Event Bus"
	carries := false
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		here := false
		for _, flag := range meshFlags(container) {
			if !flag.exact {
				continue
			}
			here = true
			if why := notAdapter(flag.value, source, obj.GetNamespace()); why != "" {
				return why
			}
		}
		if !here && k8sobject.Text(container["name"]) == kyma.EventServiceName(source) {
			return lacks // whatever another container of it carries
		}
		carries = carries || here
	}
	if !carries {
		return lacks
	}
	return ""
}

// notAdapter says why an --eventMeshURL is not that of the adapter of a source; ""
// if it is. Of a URL only the host is told: the rest may be a password.
func notAdapter(target, source, namespace string) string {
	want := "http://" + source + "." + namespace
	u, err := url.Parse(target)
	switch {
	case target == "":
		return "carries an empty --eventMeshURL, not " + want
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "carries an --eventMeshURL that is no absolute URL, not " + want
	case !hostIs(u, source, namespace):
		return fmt.Sprintf("posts to the host %q (--eventMeshURL), not to %s", u.Host, want)
	case !rooted(u):
		return fmt.Sprintf("posts to a path of the host %q (--eventMeshURL), where its adapter takes no events", u.Host)
	}
	return ""
}
