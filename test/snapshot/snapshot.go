// Package snapshot compares a whole cluster with what it was before: every
// object of every kind that can be listed.
//
// Two clusters are equal as docs/architecture.md defines it: after garbage
// collection has become stable, ignoring uid, resourceVersion, generation, timestamps,
// managedFields, status, owner UIDs (remapped) and the migration's own state
// objects. Labels and annotations count: a mark left behind is a difference.
// Also left out are the kinds that a control plane churns by itself.
package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/test/allobjects"
)

// userAgent is how the snapshot's reads appear in the audit log.
const userAgent = "eventmesh-snapshot"

// Options change what a snapshot holds.
type Options struct {
	// StateNamespace is where the migration's own objects are left out, and the
	// namespace itself; default kyma.StateNamespace. Anywhere else they are a
	// difference.
	StateNamespace string
	// Status includes the status, without its timestamps.
	Status bool
	// Raw changes nothing in the objects: the same UIDs and resource versions
	// prove that nothing was changed at all. It includes the migration's own
	// state objects.
	Raw bool
	// Ignore leaves out more objects. It sees them as the API server has them.
	Ignore func(*unstructured.Unstructured) bool
	// IgnoreAnnotations are annotations whose value does not count, such as a
	// mark that names a run; that the annotation is there does.
	IgnoreAnnotations []string
}

// Key names an object in a snapshot.
type Key struct {
	schema.GroupKind
	Namespace, Name string
}

// text spells the object as everywhere: "Kind namespace/name", or with the group.
func (k Key) text(group bool) string {
	s := k.Kind
	if group && k.Group != "" {
		s += "." + k.Group
	}
	if k.Namespace != "" {
		return s + " " + k.Namespace + "/" + k.Name
	}
	return s + " " + k.Name
}

// Snapshot is a cluster at (about) one moment.
type Snapshot struct {
	objects map[Key]map[string]any
}

// Keys returns the objects of a kind, all with "", in order.
func (s Snapshot) Keys(kind string) []Key {
	var keys []Key
	for k := range s.objects {
		if kind == "" || k.Kind == kind {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

func compareKeys(a, b Key) int { return strings.Compare(a.text(true), b.text(true)) }

// Take reads the whole cluster. A kind that cannot be discovered or listed is an
// error: what is not seen cannot be called equal.
func Take(ctx context.Context, config *rest.Config, opts Options) (Snapshot, error) {
	var all []*unstructured.Unstructured
	config = rest.CopyConfig(config)
	config.UserAgent = userAgent
	err := allobjects.Each(ctx, config, func(gr schema.GroupResource) bool { return !churning[gr] }, func(_ schema.GroupVersionResource, obj *unstructured.Unstructured) {
		all = append(all, obj)
	})
	if err != nil {
		return Snapshot{}, err
	}
	return normalize(all, opts), nil
}

// churning are kinds that change by themselves, whatever users do.
var churning = map[schema.GroupResource]bool{
	{Resource: "events"}:                                    true, // they expire
	{Group: "events.k8s.io", Resource: "events"}:            true, // the same again
	{Resource: "componentstatuses"}:                         true, // made up at each request
	{Resource: "endpoints"}:                                 true, // follow pods
	{Group: "discovery.k8s.io", Resource: "endpointslices"}: true, // follow pods, under random names
}

// normalize turns objects into what is compared.
func normalize(all []*unstructured.Unstructured, opts Options) Snapshot {
	if opts.StateNamespace == "" {
		opts.StateNamespace = kyma.StateNamespace
	}
	// An owner may be an object that is not compared: the UIDs of all count.
	uids := map[string]string{}
	for _, obj := range all {
		uids[string(obj.GetUID())] = keyOf(obj).text(true)
	}
	s := Snapshot{objects: map[Key]map[string]any{}}
	generated := map[Key][]map[string]any{}
	for _, obj := range all {
		if leaveOut(obj, opts) {
			continue
		}
		if opts.Raw {
			s.objects[keyOf(obj)] = obj.Object
			continue
		}
		content := contentOf(obj, uids, opts)
		if metav1.GetControllerOfNoCopy(obj) != nil && obj.GetGenerateName() != "" {
			// A controller replaces such an object by one of another name, as it
			// does with a Deployment's pods: how many there are counts.
			key := keyOf(obj)
			key.Name = obj.GetGenerateName() + "*"
			unstructured.RemoveNestedField(content, "metadata", "name")
			generated[key] = append(generated[key], content)
			continue
		}
		s.objects[keyOf(obj)] = content
	}
	for key, contents := range generated {
		slices.SortFunc(contents, func(a, b map[string]any) int { return strings.Compare(encoded(a), encoded(b)) })
		for i, content := range contents {
			numbered := key
			numbered.Name += fmt.Sprintf("#%d", i+1)
			s.objects[numbered] = content
		}
	}
	return s
}

func keyOf(obj *unstructured.Unstructured) Key {
	return Key{GroupKind: obj.GroupVersionKind().GroupKind(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// encoded gives contents an order.
func encoded(content map[string]any) string {
	raw, err := json.Marshal(content)
	if err != nil {
		panic(err) // it came as JSON
	}
	return string(raw)
}

// leaveOut says which objects are nobody's business.
func leaveOut(obj *unstructured.Unstructured, opts Options) bool {
	if opts.Ignore != nil && opts.Ignore(obj) {
		return true
	}
	kind, name, namespace := obj.GetKind(), obj.GetName(), obj.GetNamespace()
	if kind == "Lease" && (namespace == "kube-system" || namespace == "kube-node-lease") {
		return true // heartbeats
	}
	if opts.Raw {
		return false
	}
	if secretType, _, _ := unstructured.NestedString(obj.Object, "type"); kind == "Secret" && secretType == serviceAccountToken {
		return true // recreated, under a random name, whenever its ServiceAccount is
	}
	if namespace != opts.StateNamespace {
		return namespace == "" && kind == "Namespace" && name == opts.StateNamespace // the first write creates it
	}
	switch obj.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return name == "default" // every namespace has it
	case schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}:
		return name == stateObject
	case schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Kind: "ConfigMap"}:
		return strings.HasPrefix(name, stateObject) || name == "kube-root-ca.crt"
	}
	return false
}

// serviceAccountToken is the type of the Secrets that Kubernetes before 1.24 makes for each
// ServiceAccount.
const serviceAccountToken = "kubernetes.io/service-account-token"

// stateObject is the name of the migration's Lease, and how those of its journal
// and its reports begin.
const stateObject = "eventmesh-migration"

// contentOf returns what of an object counts.
func contentOf(obj *unstructured.Unstructured, uids map[string]string, opts Options) map[string]any {
	content := obj.DeepCopy().Object
	// The same object, whatever version of its group is preferred.
	delete(content, "apiVersion")
	if opts.Status && obj.GetKind() != "APIService" {
		content["status"] = withoutTimes(content["status"])
	} else {
		delete(content, "status")
	}
	metadata, _ := content["metadata"].(map[string]any)
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
		"deletionGracePeriodSeconds", "generateName",
	} {
		delete(metadata, field)
	}
	if metadata["deletionTimestamp"] != nil {
		// When does not count. But what is about to vanish is not what was there.
		metadata["deletionTimestamp"] = "<set>"
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		for _, key := range opts.IgnoreAnnotations {
			if annotations[key] != nil {
				annotations[key] = "<ignored>"
			}
		}
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	if labels, ok := metadata["labels"].(map[string]any); ok && len(labels) == 0 {
		delete(metadata, "labels")
	}
	if obj.GetKind() == "ServiceAccount" {
		// Before Kubernetes 1.24 they name the Secrets that have its token.
		if secrets, ok := content["secrets"].([]any); ok {
			prefix := obj.GetName() + "-token-"
			secrets = slices.DeleteFunc(secrets, func(s any) bool {
				name, _, _ := unstructured.NestedString(s.(map[string]any), "name")
				return strings.HasPrefix(name, prefix)
			})
			content["secrets"] = secrets
			if len(secrets) == 0 {
				delete(content, "secrets")
			}
		}
	}
	if obj.GetKind() == "Pod" && metav1.GetControllerOfNoCopy(obj) != nil {
		// It follows from the template of its owner, which is compared, and from
		// chance: node, token volume.
		delete(content, "spec")
	}
	if spec, ok := content["spec"].(map[string]any); ok && obj.GetKind() == "Channel" {
		// What Knative makes of the Knative Subscriptions, which are compared; in the
		// order of their UIDs.
		delete(spec, "subscribable")
		delete(spec, "subscribers")
	}
	if owners, ok := metadata["ownerReferences"].([]any); ok {
		for _, o := range owners {
			owner, _ := o.(map[string]any)
			uid, _ := owner["uid"].(string)
			if uids[uid] == "" {
				owner["uid"] = "<of no object>"
			}
		}
	}
	// Remapped: a UID means its object, wherever it stands, so that a reference
	// to the predecessor of a re-created object is a difference.
	return remap(content, uids).(map[string]any)
}

func remap(v any, uids map[string]string) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = remap(value, uids)
		}
	case []any:
		for i := range v {
			v[i] = remap(v[i], uids)
		}
	case string:
		if object := uids[v]; object != "" {
			return "<uid of " + object + ">"
		}
	}
	return v
}

// withoutTimes removes from a status what says when.
func withoutTimes(v any) any {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(key string, _ any) bool {
			return key == "observedGeneration" || strings.HasSuffix(key, "Time") || strings.HasSuffix(key, "_time")
		})
		for key, value := range v {
			v[key] = withoutTimes(value)
		}
	case []any:
		for i := range v {
			v[i] = withoutTimes(v[i])
		}
	}
	return v
}
