package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/test/samplecluster"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// census is what of the cluster the demo tells about.
type census struct {
	applications int
	sources      map[string]source
	// instances that the mesh does not know, and the others.
	unknownInstances, knownInstances int
	subscriptions                    int
	brokers, triggers                int
	// oldServices post to the Event Bus, newServices to the mesh.
	oldServices, newServices int
	// bus are the replicas of the Event Bus, held the objects that only its
	// controller lets go.
	bus, held int64
	// definition says that the kind of Kyma Subscriptions is there.
	definition bool
}

// source is one HTTPSource.
type source struct {
	uid        types.UID
	generation int64
	// ready says that the HTTPSource, its Channel and its adapter are, each by
	// its own condition.
	ready bool
}

func (c census) ready() int {
	n := 0
	for _, s := range c.sources {
		if s.ready {
			n++
		}
	}
	return n
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

const definition = "subscriptions.eventing.kyma-project.io"

func (d *demo) census(ctx context.Context) (census, error) {
	var failed error
	read := func(gvr schema.GroupVersionResource) []unstructured.Unstructured {
		// The sample fits into a page.
		list, err := d.cluster.Client.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			failed = fmt.Errorf("cannot list %s: %w", gvr.Resource, err)
			return nil
		}
		return list.Items
	}
	named := func(all []unstructured.Unstructured, name string) unstructured.Unstructured {
		if i := slices.IndexFunc(all, func(u unstructured.Unstructured) bool { return u.GetName() == name }); i >= 0 {
			return all[i]
		}
		return unstructured.Unstructured{}
	}
	c := census{applications: len(read(standin.Applications)), sources: map[string]source{}}
	channels, adapters := read(samplecluster.Knative("messaging", "channels")), read(samplecluster.Knative("serving", "services"))
	for _, u := range read(standin.HTTPSources) {
		name := u.GetName()
		c.sources[name] = source{u.GetUID(), u.GetGeneration(), ready(u) && ready(named(channels, name)) && ready(named(adapters, name))}
	}
	activations := read(standin.EventActivations)
	for _, u := range read(standin.ServiceInstances) {
		if slices.ContainsFunc(activations, func(a unstructured.Unstructured) bool {
			return a.GetNamespace() == u.GetNamespace() && a.GetName() == samplecluster.OldService
		}) {
			c.knownInstances++
		} else {
			c.unknownInstances++
		}
	}
	for _, u := range activations {
		c.held += int64(len(u.GetFinalizers()))
	}
	for _, u := range read(definitions) {
		c.definition = c.definition || u.GetName() == definition
	}
	if c.definition {
		c.subscriptions = len(read(standin.KymaSubscriptions))
	}
	for _, u := range read(samplecluster.Knative("eventing", "brokers")) {
		if ready(u) {
			c.brokers++
		}
	}
	for _, u := range read(samplecluster.Knative("eventing", "triggers")) {
		if ready(u) {
			c.triggers++
		}
	}
	for _, u := range read(standin.Deployments) {
		replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		switch {
		case u.GetName() == standin.Publisher || u.GetName() == standin.SubscriptionController:
			c.bus += replicas
		case !strings.HasSuffix(u.GetName(), "-event-service"):
		case onMesh(u):
			c.newServices++
		default:
			c.oldServices++
		}
	}
	return c, failed
}

// onMesh says whether an event-service posts to the mesh.
func onMesh(u unstructured.Unstructured) bool {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		args, _ := c.(map[string]any)["args"].([]any)
		if slices.ContainsFunc(args, func(arg any) bool { s, _ := arg.(string); return strings.HasPrefix(s, "--eventMeshURL=") }) {
			return true
		}
	}
	return false
}

func ready(u unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Ready" {
			return m["status"] == "True"
		}
	}
	return false
}
