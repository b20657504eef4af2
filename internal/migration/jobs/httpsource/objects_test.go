package httpsource

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

const namespace = kyma.IntegrationNamespace

// edit changes an object of a test.
type edit func(obj map[string]any)

func set(value any, path ...string) edit {
	return func(obj map[string]any) {
		if err := unstructured.SetNestedField(obj, value, path...); err != nil {
			panic(err)
		}
	}
}

func unset(path ...string) edit {
	return func(obj map[string]any) { unstructured.RemoveNestedField(obj, path...) }
}

// says sets the condition Ready.
func says(status, reason, message string) edit {
	return set([]any{
		map[string]any{"type": "Other", "status": "True", "lastTransitionTime": "2020-03-01T00:00:00Z"},
		map[string]any{"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2020-03-01T00:00:00Z"},
	}, "status", "conditions")
}

// generation sets what the object is at and what its controller has seen.
func generation(now, observed int64) edit {
	return func(obj map[string]any) {
		set(now, "metadata", "generation")(obj)
		set(observed, "status", "observedGeneration")(obj)
	}
}

func deleting() edit { return set("2020-03-01T00:00:00Z", "metadata", "deletionTimestamp") }

func ownedBy(apiVersion, kind, name, uid string) edit {
	return set([]any{map[string]any{
		"apiVersion": apiVersion, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true,
	}}, "metadata", "ownerReferences")
}

func edited(obj map[string]any, edits []edit) *unstructured.Unstructured {
	for _, e := range edits {
		e(obj)
	}
	return &unstructured.Unstructured{Object: obj}
}

func meta(name, uid string) map[string]any {
	return map[string]any{
		"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1", "generation": int64(1),
		"creationTimestamp": "2020-03-01T00:00:00Z", "labels": map[string]any{"application-name": name},
	}
}

// The three objects of an Application, ready unless edited.

func source(name string, edits ...edit) *unstructured.Unstructured {
	return edited(map[string]any{
		"apiVersion": "sources.kyma-project.io/v1alpha1", "kind": "HTTPSource", "metadata": meta(name, "uid-"+name),
		"spec":   map[string]any{"source": name},
		"status": map[string]any{"SinkURI": "http://" + name + "-kn-channel." + namespace + ".svc.cluster.local"},
	}, append([]edit{says("True", "", "")}, edits...))
}

func channel(name string, edits ...edit) *unstructured.Unstructured {
	return edited(map[string]any{
		"apiVersion": "messaging.knative.dev/v1", "kind": "Channel", "metadata": meta(name, "uid-channel-"+name),
		"spec":   map[string]any{"channelTemplate": map[string]any{"apiVersion": "messaging.knative.dev/v1alpha1", "kind": "NatssChannel"}},
		"status": map[string]any{"address": map[string]any{"url": "http://" + name + "-kn-channel." + namespace + ".svc.cluster.local"}},
	}, append([]edit{says("True", "", ""), generation(1, 1), ownedBy("sources.kyma-project.io/v1alpha1", "HTTPSource", name, "uid-"+name)}, edits...))
}

func service(name string, edits ...edit) *unstructured.Unstructured {
	return edited(map[string]any{
		"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": meta(name, "uid-service-"+name),
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"image": "adapter", "env": []any{map[string]any{"name": "EVENT_SOURCE", "value": name}}},
		}}}},
		"status": map[string]any{"url": "http://" + name + "." + namespace},
	}, append([]edit{says("True", "", ""), generation(1, 1), ownedBy("sources.kyma-project.io/v1alpha1", "HTTPSource", name, "uid-"+name)}, edits...))
}

// unserve returns the kinds with some that are not served.
func unserve(names ...string) kinds {
	k := assumedKinds()
	for _, name := range names {
		for _, of := range []*migration.Kind{&k.application, &k.httpSource, &k.channel, &k.service} {
			if of.Kind == name {
				*of = migration.Kind{GroupKind: of.GroupKind, Resource: migration.Resource{Kind: name}}
			}
		}
	}
	return k
}

func defaults() options { return New().options }
