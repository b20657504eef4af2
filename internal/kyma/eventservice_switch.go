package kyma

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ApplicationOf returns the Application whose event-service a Deployment is, or
// a Pod belongs to, "" for any other one. A Pod whose labels were taken off is
// known by its container.
func ApplicationOf(obj *unstructured.Unstructured) string {
	if obj.GetKind() != "Pod" {
		return eventServiceSource(obj.GetName())
	}
	labels := MapAt(obj.Object, "metadata", "labels")
	if app := eventServiceSource(Text(labels["app"])); app != "" {
		return app
	}
	containers, _ := MapAt(obj.Object, "spec")["containers"].([]any)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		if app := eventServiceSource(Text(container["name"])); app != "" {
			return app
		}
	}
	return ""
}

// Ended says whether a Pod has run to its end, well or not: an evicted one stays
// for ever, and does nothing.
func Ended(pod *unstructured.Unstructured) bool {
	phase := Text(MapAt(pod.Object, "status")["phase"])
	return phase == "Succeeded" || phase == "Failed"
}

// PostsToMesh says whether a Deployment or a Pod carries --eventMeshURL.
func PostsToMesh(obj *unstructured.Unstructured) bool { return MeshSources(obj) != nil }

// NotSwitched says why an event-service is not switched to the mesh, "" if it
// is: its Deployment carries --eventMeshURL, has observed its generation and is
// fully updated, and no pod of it, terminating ones included, lacks the flag.
// pods are all of the Application, or those that lack the flag; deployment may be
// nil. No pod and no Deployment is switched: nothing posts to the Event Bus.
func NotSwitched(deployment *unstructured.Unstructured, pods []*unstructured.Unstructured) string {
	if deployment != nil {
		if !PostsToMesh(deployment) {
			return "it does not carry --eventMeshURL, so it posts to the Event Bus"
		}
		generation := deployment.GetGeneration()
		status := MapAt(deployment.Object, "status")
		observed, _ := integer(status["observedGeneration"])
		if observed < generation {
			return fmt.Sprintf("its controller has not seen its last change yet (generation %d, observed %d)", generation, observed)
		}
		want, ok := integer(MapAt(deployment.Object, "spec")["replicas"])
		if !ok {
			want = 1
		}
		updated, _ := integer(status["updatedReplicas"])
		all, _ := integer(status["replicas"])
		switch {
		case updated < want:
			return fmt.Sprintf("%d of its %d pods are of the new version", updated, want)
		case all > updated:
			return fmt.Sprintf("%d of its pods are of the former version", all-updated)
		}
	}
	for _, pod := range pods {
		if PostsToMesh(pod) || Ended(pod) {
			continue
		}
		if pod.GetDeletionTimestamp() != nil {
			return fmt.Sprintf("Pod %s/%s, which posts to the Event Bus, is still terminating", pod.GetNamespace(), pod.GetName())
		}
		return fmt.Sprintf("Pod %s/%s posts to the Event Bus", pod.GetNamespace(), pod.GetName())
	}
	return ""
}
