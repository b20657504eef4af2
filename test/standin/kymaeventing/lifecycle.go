package kymaeventing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// KymaKind and ManifestKind are the definitions of the kinds of lifecycle-manager.
const (
	KymaKind     = "kymas.operator.kyma-project.io"
	ManifestKind = "manifests.operator.kyma-project.io"
)

// ControlPlane is the namespace of the Manifests.
const ControlPlane = "kcp-system"

// KymaDefinition and ManifestDefinition are those definitions, as far as they matter here.
const (
	KymaDefinition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + KymaKind + `},
 spec: {group: operator.kyma-project.io, scope: Namespaced, names: {kind: Kyma, plural: kymas, singular: kyma},
  versions: [{name: v1beta2, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: {
   spec: {type: object, required: [channel], properties: {channel: {type: string}, modules: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name, managed], properties: {
    name: {type: string}, channel: {type: string}, managed: {type: boolean, default: true}, customResourcePolicy: {type: string, enum: [CreateAndDelete, Ignore], default: CreateAndDelete}}}}}},
   status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}]}}`
	ManifestDefinition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + ManifestKind + `},
 spec: {group: operator.kyma-project.io, scope: Namespaced, names: {kind: Manifest, plural: manifests, singular: manifest},
  versions: [{name: v1beta2, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
)

const (
	managedLabel    = "operator.kyma-project.io/managed-by"
	moduleLabel     = "operator.kyma-project.io/module-name"
	letGoAnnotation = "operator.kyma-project.io/is-unmanaged"
	ownerAnnotation = "deprecated-operator.kyma-project.io/owned-by"

	manifestFinalizer = "declarative.kyma-project.io/finalizer"
	defaultFinalizer  = "resource.kyma-project.io/finalizer"
	labelFinalizer    = "label-removal-finalizer"
	ignore            = "Ignore"
	unmanaged         = "Unmanaged"
)

var (
	kymas     = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1beta2", Resource: "kymas"}
	manifests = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1beta2", Resource: "manifests"}
	// operatorKinds are deleted last.
	operatorKinds = []string{"CustomResourceDefinition", "Namespace", "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Service", "Deployment"}
)

// Module is one that lifecycle-manager knows.
type Module struct {
	// Objects are applied again and again, and Default is created once.
	Objects []*unstructured.Unstructured
	Default *unstructured.Unstructured
}

// Modules are Kyma's, by their names. The definitions are those of Subscription and Eventing.
func Modules(eventingSpec string, definitions ...*unstructured.Unstructured) (map[string]Module, error) {
	parse := func(texts ...string) (all []*unstructured.Unstructured, err error) {
		for _, text := range texts {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
				return nil, err
			}
			all = append(all, u)
		}
		return all, nil
	}
	eventing, err := parse(append(eventingManifest(), eventingObject(eventingSpec))...)
	if err != nil {
		return nil, err
	}
	nats, err := parse(append(natsManifest(), NATSDefinition, NATS)...)
	if err != nil {
		return nil, err
	}
	last := len(eventing) - 1
	return map[string]Module{
		"eventing": {Objects: append(slices.Clone(definitions), eventing[:last]...), Default: eventing[last]},
		"nats":     {Objects: nats[:len(nats)-1], Default: nats[len(nats)-1]},
	}, nil
}

// module is what its own Kyma says of one.
type module struct {
	state    string
	manifest bool
}

// Lifecycle plays lifecycle-manager.
type Lifecycle struct {
	client  dynamic.Interface
	modules map[string]Module

	mu     sync.Mutex // one turn at a time
	status map[string]module
}

// NewLifecycle returns one that does nothing before its first turn.
func NewLifecycle(config *rest.Config, modules map[string]Module) (*Lifecycle, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	return &Lifecycle{client: client, modules: modules, status: map[string]module{}}, err
}

// Start takes one turn after the other until it is stopped.
func (l *Lifecycle) Start(log func(format string, args ...any)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		last := ""
		for ctx.Err() == nil {
			if err := l.Turn(ctx); err != nil && ctx.Err() == nil && err.Error() != last {
				last = err.Error()
				log("lifecycle-manager: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// Turn reconciles the Kyma, and then each Manifest.
func (l *Lifecycle) Turn(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.kyma(ctx); err != nil {
		return err
	}
	list, err := l.client.Resource(manifests).Namespace(ControlPlane).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var failed []error
	for i := range list.Items {
		if err := ignoreRace(l.manifest(ctx, &list.Items[i])); err != nil {
			failed = append(failed, fmt.Errorf("manifest %s: %w", list.Items[i].GetName(), err))
		}
	}
	return errors.Join(failed...)
}

func (l *Lifecycle) kyma(ctx context.Context) error {
	of := l.client.Resource(kymas).Namespace(namespace)
	kyma, err := of.Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		return ignoreRace(err)
	}
	listed := map[string]bool{}
	entries, _, _ := unstructured.NestedSlice(kyma.Object, "spec", "modules")
	for _, entry := range entries {
		name, _ := entry.(map[string]any)["name"].(string)
		policy, _ := entry.(map[string]any)["customResourcePolicy"].(string)
		managed, _ := entry.(map[string]any)["managed"].(bool)
		listed[name] = true
		if l.status[name], err = l.module(ctx, name, policy, managed); err != nil {
			return err
		}
	}
	for name, is := range l.status {
		if listed[name] {
			continue
		}
		if !is.manifest { // it was let go of
			delete(l.status, name)
			continue
		}
		m, err := l.client.Resource(manifests).Namespace(ControlPlane).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			delete(l.status, name)
			continue
		}
		if err != nil {
			return err
		}
		l.status[name] = module{stateOf(m), true}
		if err := l.client.Resource(manifests).Namespace(ControlPlane).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return ignoreRace(err)
		}
	}
	var all []any
	for _, name := range slices.Sorted(maps.Keys(l.status)) {
		all = append(all, map[string]any{"name": name, "state": l.status[name].state})
	}
	kyma.Object["status"] = map[string]any{
		"modules":       all,
		"lastOperation": map[string]any{"operation": "turn", "lastUpdateTime": time.Now().UTC().Format(time.RFC3339)},
	}
	_, err = of.UpdateStatus(ctx, kyma, metav1.UpdateOptions{})
	return ignoreRace(err)
}

// module makes or marks the Manifest of one that is listed.
func (l *Lifecycle) module(ctx context.Context, name, policy string, managed bool) (module, error) {
	known, ok := l.modules[name]
	if !ok {
		return module{state: "Error"}, nil // there is no template, whether it is managed or not
	}
	of := l.client.Resource(manifests).Namespace(ControlPlane)
	m, err := of.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && managed:
		m, err = of.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": manifests.GroupVersion().String(), "kind": "Manifest",
			"metadata": map[string]any{"name": name, "namespace": ControlPlane, "labels": map[string]any{moduleLabel: name, managedLabel: "lifecycle-manager"}},
			"spec":     map[string]any{"customResourcePolicy": policy, "resource": known.Default.DeepCopy().Object},
		}}, metav1.CreateOptions{})
	case apierrors.IsNotFound(err):
		err = nil
	case err == nil && !managed && !letGo(m):
		_, err = of.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+letGoAnnotation+`":"true"}}}`), metav1.PatchOptions{})
	}
	if err != nil {
		return module{}, err
	}
	if !managed {
		return module{state: unmanaged}, nil
	}
	return module{stateOf(m), true}, nil
}

func letGo(m *unstructured.Unstructured) bool { return m.GetAnnotations()[letGoAnnotation] == "true" }

func stateOf(m *unstructured.Unstructured) string {
	state, _, _ := unstructured.NestedString(m.Object, "status", "state")
	return state
}

func (l *Lifecycle) manifest(ctx context.Context, m *unstructured.Unstructured) error {
	switch deleted := m.GetDeletionTimestamp() != nil; {
	case deleted && letGo(m):
		m.SetFinalizers(nil)
		return l.update(ctx, m)
	case letGo(m):
		return l.letGo(ctx, m)
	case deleted:
		return l.remove(ctx, m)
	case !slices.Contains(m.GetFinalizers(), labelFinalizer):
		m.SetFinalizers([]string{manifestFinalizer, labelFinalizer})
		return l.update(ctx, m)
	}
	if err := l.apply(ctx, m); err != nil {
		return errors.Join(err, l.state(ctx, m, "Error"))
	}
	policy, _, _ := unstructured.NestedString(m.Object, "spec", "customResourcePolicy")
	if policy != ignore && !slices.Contains(m.GetFinalizers(), defaultFinalizer) { // once
		if _, err := l.of(l.initial(m)).Create(ctx, l.initial(m), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		m.SetFinalizers(append(m.GetFinalizers(), defaultFinalizer))
		return l.update(ctx, m)
	}
	for _, object := range l.modules[m.GetName()].Objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		d, err := l.of(object).Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ready, _, _ := unstructured.NestedInt64(d.Object, "status", "readyReplicas"); ready == 0 {
			return l.state(ctx, m, "Processing")
		}
	}
	return l.state(ctx, m, "Ready")
}

func (l *Lifecycle) initial(m *unstructured.Unstructured) *unstructured.Unstructured {
	return l.modules[m.GetName()].Default.DeepCopy()
}

// of is where an object is.
func (l *Lifecycle) of(u *unstructured.Unstructured) dynamic.ResourceInterface {
	if u.GetNamespace() == "" {
		return l.client.Resource(resourceOf(u))
	}
	return l.client.Resource(resourceOf(u)).Namespace(u.GetNamespace())
}

// apply applies all objects by force, and remembers them.
func (l *Lifecycle) apply(ctx context.Context, m *unstructured.Unstructured) error {
	var failed []error
	var synced []any
	for _, object := range l.modules[m.GetName()].Objects {
		u := object.DeepCopy()
		labels, annotations := u.GetLabels(), u.GetAnnotations()
		if labels == nil {
			labels = map[string]string{}
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		labels[managedLabel], annotations[ownerAnnotation] = "kyma", ControlPlane+"/"+m.GetName()
		u.SetLabels(labels)
		u.SetAnnotations(annotations)
		if _, err := l.of(u).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "declarative.kyma-project.io/applier", Force: true}); err != nil {
			failed = append(failed, err)
		}
		gvk := u.GroupVersionKind()
		synced = append(synced, map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind, "name": u.GetName(), "namespace": u.GetNamespace()})
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	if was, _, _ := unstructured.NestedSlice(m.Object, "status", "synced"); same(map[string]any{"is": was}, map[string]any{"is": synced}) {
		return nil
	}
	_ = unstructured.SetNestedSlice(m.Object, synced, "status", "synced") // it is made of texts
	return l.updateStatus(ctx, m)
}

// letGo removes the label of each object that was applied, and then the Manifest. An object that is
// gone stops it.
func (l *Lifecycle) letGo(ctx context.Context, m *unstructured.Unstructured) error {
	if !slices.Contains(m.GetFinalizers(), labelFinalizer) {
		return l.client.Resource(manifests).Namespace(ControlPlane).Delete(ctx, m.GetName(), metav1.DeleteOptions{})
	}
	for _, object := range synced(m) {
		u, err := l.of(object).Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("cannot remove a label: %w", err)
		}
		labels := u.GetLabels()
		if _, ok := labels[managedLabel]; !ok {
			continue
		}
		delete(labels, managedLabel)
		u.SetLabels(labels)
		if _, err := l.of(object).Update(ctx, u, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	m.SetFinalizers(slices.DeleteFunc(m.GetFinalizers(), func(f string) bool { return f == labelFinalizer }))
	return l.update(ctx, m)
}

// synced are the objects that were applied.
func synced(m *unstructured.Unstructured) (all []*unstructured.Unstructured) {
	list, _, _ := unstructured.NestedSlice(m.Object, "status", "synced")
	for _, of := range list {
		is := of.(map[string]any)
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: is["group"].(string), Version: is["version"].(string), Kind: is["kind"].(string)})
		u.SetName(is["name"].(string))
		u.SetNamespace(is["namespace"].(string))
		all = append(all, u)
	}
	return all
}

// remove deletes the default object, waits, and then deletes all that was applied.
func (l *Lifecycle) remove(ctx context.Context, m *unstructured.Unstructured) error {
	first := l.initial(m)
	policy, _, _ := unstructured.NestedString(m.Object, "spec", "customResourcePolicy")
	list, err := l.client.Resource(resourceOf(first)).List(ctx, metav1.ListOptions{}) // of all namespaces
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	var exists, others bool
	if err == nil {
		for i := range list.Items {
			is := list.Items[i].GetName() == first.GetName() && list.Items[i].GetNamespace() == first.GetNamespace()
			exists = exists || is && policy != ignore
			others = others || !is || policy == ignore
		}
	}
	switch {
	case others:
		return l.state(ctx, m, "Deleting")
	case exists:
		background := metav1.DeletePropagationBackground
		if err := l.of(first).Delete(ctx, first.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return errors.Join(l.apply(ctx, m), l.state(ctx, m, "Deleting"))
	}
	for _, operators := range []bool{false, true} {
		left, err := l.deleteAll(ctx, m, operators)
		if err != nil {
			return err
		}
		if left {
			return l.state(ctx, m, "Warning")
		}
	}
	m.SetFinalizers(nil)
	return l.update(ctx, m)
}

// deleteAll deletes what was applied, parts of an operator or the others, also what somebody else
// has changed since. It is true while something is left.
func (l *Lifecycle) deleteAll(ctx context.Context, m *unstructured.Unstructured, operators bool) (left bool, err error) {
	background := metav1.DeletePropagationBackground
	for _, object := range synced(m) {
		if slices.Contains(operatorKinds, object.GetKind()) != operators || object.GetKind() == "Namespace" && object.GetName() == namespace {
			continue
		}
		switch err := l.of(object).Delete(ctx, object.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}); {
		case err == nil:
			left = true
		case !apierrors.IsNotFound(err):
			return false, err
		}
	}
	return left, nil
}

// state writes the state of a Manifest, if it differs.
func (l *Lifecycle) state(ctx context.Context, m *unstructured.Unstructured, state string) error {
	if stateOf(m) == state {
		return nil
	}
	_ = unstructured.SetNestedField(m.Object, state, "status", "state") // it is a text
	return l.updateStatus(ctx, m)
}

func (l *Lifecycle) update(ctx context.Context, m *unstructured.Unstructured) error {
	_, err := l.client.Resource(manifests).Namespace(ControlPlane).Update(ctx, m, metav1.UpdateOptions{})
	return err
}

// updateStatus goes on with what the API server has then.
func (l *Lifecycle) updateStatus(ctx context.Context, m *unstructured.Unstructured) error {
	is, err := l.client.Resource(manifests).Namespace(ControlPlane).UpdateStatus(ctx, m, metav1.UpdateOptions{})
	if err == nil {
		m.Object = is.Object
	}
	return err
}
