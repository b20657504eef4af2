package eventpath

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
)

// ApplicationsOf returns the Applications of whose event-service a Deployment or a
// Pod may be, sorted; none for any other workload. A Deployment is known by its
// name. A Pod is known by its label "app", by its containers, and by the ReplicaSet
// that owns it: one whose label was removed still posts.
func ApplicationsOf(obj *unstructured.Unstructured) []string {
	names := []string{obj.GetName()}
	if obj.GetKind() != Deployment.Kind {
		names = signs(obj)
	}
	found := map[string]bool{}
	for _, name := range names {
		if application, ok := kyma.EventServiceOf(name); ok && application != "" {
			found[application] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// signs are by what a Pod, or the template of one, may be known: the value of its
// label "app", the names of its containers, and the Deployments that own it.
func signs(obj *unstructured.Unstructured) []string {
	if template := k8sobject.MapAt(obj.Object, "spec", "template"); template != nil {
		obj = &unstructured.Unstructured{Object: template}
	}
	names := []string{k8sobject.Text(k8sobject.MapAt(obj.Object, "metadata", "labels")["app"])}
	note := func(name string) { names = append(names, name) }
	eachContainer(obj, note)
	eachOwner(obj, note)
	return names
}

// OfEventBus says whether a Pod in the namespace of the Event Bus is one of the named
// Deployment of it. Its owner decides. A Pod without one, such as one whose labels were
// removed, is known by its container, its labels or its name: it still works.
func OfEventBus(pod *unstructured.Unstructured, deployment string) bool {
	if owner, owned := kyma.ControllerOf(pod); owned {
		return owner.Kind == "ReplicaSet" && withoutSuffix(owner.Name) == deployment
	}
	// The chart calls the container, and labels the pods, by its own name.
	chart := strings.TrimPrefix(deployment, kyma.EventBusRelease+"-")
	labels := k8sobject.MapAt(pod.Object, "metadata", "labels")
	ours := labels["app.kubernetes.io/instance"] == kyma.EventBusRelease && labels["app.kubernetes.io/name"] == chart ||
		withoutSuffix(withoutSuffix(pod.GetName())) == deployment
	eachContainer(pod, func(name string) { ours = ours || name == chart })
	return ours
}

// BusPods are the Pods of a Deployment of the Event Bus that may still do something:
// those that it owns by its ReplicaSets, which the caller has found, and of all others
// those that OfEventBus knows.
func BusPods(deployment string, owned, all []*unstructured.Unstructured) []*unstructured.Unstructured {
	found := slices.Clone(owned)
	known := map[string]bool{}
	for _, pod := range owned {
		known[pod.GetName()] = true
	}
	for _, pod := range all {
		if !known[pod.GetName()] && OfEventBus(pod, deployment) && !kyma.Ended(pod) {
			found = append(found, pod)
		}
	}
	return found
}

// TrimWorkload leaves out of a Deployment or a Pod what is not read of it here: it keeps what tells
// the path of events, and how far it is rolled out.
func TrimWorkload(obj *unstructured.Unstructured) {
	k8sobject.TrimMeta(obj)
	k8sobject.TrimAnnotations(obj)
	spec := k8sobject.MapAt(obj.Object, "spec")
	of := spec
	if template := k8sobject.MapAt(spec, "template"); template != nil {
		of = k8sobject.MapAt(template, "spec")
	}
	all, _ := of["containers"].([]any)
	kept := make([]any, 0, len(all))
	for _, c := range all {
		container, _ := c.(map[string]any)
		few := map[string]any{}
		for _, key := range []string{"name", "image", "command", "args"} {
			if v, ok := container[key]; ok {
				few[key] = v
			}
		}
		kept = append(kept, few)
	}
	for key := range of {
		if key != "containers" && key != "replicas" && key != "progressDeadlineSeconds" {
			delete(of, key)
		}
	}
	if of != nil {
		of["containers"] = kept
	}
}

// TrimPod leaves out of a Pod what OfEventBus, kyma.Ended and a look at its deletion do not
// read: thousands of them take much room.
func TrimPod(pod *unstructured.Unstructured) {
	var names []any
	eachContainer(pod, func(name string) { names = append(names, map[string]any{"name": name}) })
	pod.Object["spec"] = map[string]any{"containers": names}
	pod.Object["status"] = map[string]any{"phase": k8sobject.MapAt(pod.Object, "status")["phase"]}
	delete(k8sobject.MapAt(pod.Object, "metadata"), "managedFields")
}

func eachContainer(pod *unstructured.Unstructured, visit func(name string)) {
	containers, _ := k8sobject.MapAt(pod.Object, "spec")["containers"].([]any)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		visit(k8sobject.Text(container["name"]))
	}
}

// eachOwner visits the names of the Deployments whose ReplicaSets own a Pod, as far
// as the names say so: that of a ReplicaSet is the Deployment's with a hash.
func eachOwner(pod *unstructured.Unstructured, visit func(deployment string)) {
	references, _ := k8sobject.MapAt(pod.Object, "metadata")["ownerReferences"].([]any)
	for _, r := range references {
		reference, _ := r.(map[string]any)
		if k8sobject.Text(reference["kind"]) == "ReplicaSet" {
			visit(withoutSuffix(k8sobject.Text(reference["name"])))
		}
	}
}

// withoutSuffix is a name without the part that was generated for it.
func withoutSuffix(name string) string {
	return name[:max(strings.LastIndexByte(name, '-'), 0)]
}

// FormerPods are the Pods that are not proven to post to the mesh, by the Application
// that they post for, and by name. Of a Pod only the answer is kept.
type FormerPods map[string]map[string]Answer

// Add looks at a Pod, which may be any. It may be seen twice.
func (f FormerPods) Add(pod *unstructured.Unstructured) {
	if kyma.Ended(pod) {
		return
	}
	for _, application := range ApplicationsOf(pod) {
		why := postsElsewhere(pod, application)
		if why == "" {
			continue
		}
		self := of(Pod, pod)
		note, verb := "Wait until it has ended, and run again. If it stays, check for a finalizer or a dead node.", "get"
		if pod.GetDeletionTimestamp() != nil {
			why += "; it is terminating, and posts until it has ended"
		} else {
			note, verb = "Check why it still runs. If it has no owner, delete it.", "describe"
		}
		if f[application] == nil {
			f[application] = map[string]Answer{}
		}
		f[application][self.Name] = Answer{EventServiceFormerPod, self, why, note, self.kubectl(verb)}
	}
}

// Of returns those of an Application in the order of their names.
func (f FormerPods) Of(application string) []Answer {
	var all []Answer
	for _, name := range slices.Sorted(maps.Keys(f[application])) {
		all = append(all, f[application][name])
	}
	return all
}

// Former are the FormerPods of an Application among these Pods.
func Former(application string, pods []*unstructured.Unstructured) []Answer {
	f := FormerPods{}
	for _, pod := range pods {
		f.Add(pod)
	}
	return f.Of(application)
}

// PostsToMesh says whether a Deployment or a Pod carries --eventMeshURL, whatever
// its value: that it was upgraded, and not that it posts to the right place.
func PostsToMesh(obj *unstructured.Unstructured) bool { return MeshSources(obj) != nil }
