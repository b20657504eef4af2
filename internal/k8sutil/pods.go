package k8sutil

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// PodsOfDeployment returns the pods that belong to a Deployment by their owners,
// whatever their labels say; terminating ones are among them, those that ran to
// their end are not. sets and pods are those of its namespace. deployment may be
// nil: its pods may outlive it.
func PodsOfDeployment(name string, deployment *unstructured.Unstructured, sets, pods []*unstructured.Unstructured) []*unstructured.Unstructured {
	const hashLabel = "pod-template-hash"
	known, ofDeployment := map[string]bool{}, map[string]bool{} // by the name of the ReplicaSet
	for _, set := range sets {
		known[set.GetName()] = true
		owner := metav1.GetControllerOfNoCopy(set)
		// By name: the pods of a Deployment that was created again are its, too.
		ofDeployment[set.GetName()] = owner != nil && owner.Kind == "Deployment" && owner.Name == name
	}
	selector := matchLabels(deployment)
	var found []*unstructured.Unstructured
	for _, pod := range pods {
		phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
		if (phase == "Succeeded" || phase == "Failed") && pod.GetDeletionTimestamp() == nil {
			continue // an evicted pod stays for ever
		}
		owner := metav1.GetControllerOfNoCopy(pod)
		var ours bool
		switch {
		case owner == nil:
			// Orphaned: the labels are all that is left to go by.
			ours = selector != nil && selector.Matches(labels.Set(pod.GetLabels()))
		case owner.Kind != "ReplicaSet":
		case known[owner.Name]:
			ours = ofDeployment[owner.Name]
		default:
			// Its ReplicaSet is gone, and it will follow.
			hash := pod.GetLabels()[hashLabel]
			ours = hash != "" && owner.Name == name+"-"+hash
		}
		if ours {
			found = append(found, pod)
		}
	}
	return found
}

func matchLabels(deployment *unstructured.Unstructured) labels.Selector {
	if deployment == nil {
		return nil
	}
	match, _, err := unstructured.NestedStringMap(deployment.Object, "spec", "selector", "matchLabels")
	if err != nil || len(match) == 0 {
		return nil
	}
	return labels.SelectorFromSet(match)
}
