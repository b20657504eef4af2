package standin

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// BindingUsages stand in for Kyma's controller of ServiceBindingUsages (docs/migration/domain.md
// §4.9). A usage whose ServiceBinding is ready gets a PodPreset with the binding's Secret, and its
// Deployment the label by which the PodPreset finds its pods; then it is Ready. When the usage
// goes, both go.
//
// The usage gets a plain owner reference to its binding, told by kind and name: one with the UID of
// an earlier binding of that name stays, and lets the garbage collector take the usage. If the
// controller does not see the binding, it removes the reference.
//
// It looks at a usage when that is new, or its spec changes, and never because of its binding: a
// usage that waits for its binding is tried 15 times, the last time after almost three minutes, and
// then not again.
//
// Both kinds of workload, Deployments and functions, are Deployments here. The real controller
// keeps what it has applied in a ConfigMap; here, the PodPreset tells.
type BindingUsages struct {
	*loop
	client                               dynamic.Interface
	usages, bindings, presets, workloads *store
}

// Annotations of a PodPreset that tell its usage, and the workload.
const (
	usageAnnotation    = "servicebindingusages.servicecatalog.kyma-project.io/owner-name"
	workloadAnnotation = "servicebindingusages.servicecatalog.kyma-project.io/used-by"
)

// usageRetries is how often a usage is tried again before it is given up.
const usageRetries = 15

// StartBindingUsages runs the controller until Stop or the end of ctx.
func StartBindingUsages(ctx context.Context, cfg *rest.Config, opts Options) (*BindingUsages, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS = UserAgent, -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	u := &BindingUsages{
		loop: newLoop(ctx, opts.Log, 1000*time.Second), client: client,
		usages:    newStore(client, ServiceBindingUsages, "ServiceBindingUsage"),
		bindings:  newStore(client, ServiceBindings, "ServiceBinding"),
		presets:   newStore(client, PodPresets, "PodPreset"),
		workloads: newStore(client, Deployments, "Deployment"),
	}
	u.retries = usageRetries
	_, err = u.usages.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { u.queue.Add(keyOf(obj.(*unstructured.Unstructured))) },
		UpdateFunc: func(old, obj any) {
			before, after := old.(*unstructured.Unstructured), obj.(*unstructured.Unstructured)
			if before.GetUID() != after.GetUID() || !equality.Semantic.DeepEqual(before.Object["spec"], after.Object["spec"]) {
				u.queue.Add(keyOf(after))
			}
		},
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				u.queue.Add(key)
			}
		},
	})
	if err != nil {
		u.end()
		return nil, fmt.Errorf("cannot watch ServiceBindingUsages: %w", err)
	}
	for _, s := range []*store{u.bindings, u.presets, u.workloads, u.usages} {
		if err := u.watch(s, func(string) {}); err != nil {
			u.end()
			return nil, err
		}
	}
	u.run(u.reconcile)
	return u, nil
}

// Stop ends the controller; what it has made stays.
func (u *BindingUsages) Stop() { u.end() }

func (u *BindingUsages) reconcile(ctx context.Context, key string) error {
	usage := u.usages.get(key)
	if usage == nil {
		return u.revert(ctx, u.presets.get(presetKey(key)))
	}
	usage, reason, err := u.apply(ctx, usage.DeepCopy())
	if err != nil {
		return errors.Join(err, u.status(ctx, usage, "False", reason, err.Error()))
	}
	return u.status(ctx, usage, "True", "", "")
}

// apply does all for a usage, and says why it cannot.
func (u *BindingUsages) apply(ctx context.Context, usage *unstructured.Unstructured) (_ *unstructured.Unstructured, reason string, err error) {
	name := text(usage, "spec", "serviceBindingRef", "name")
	owners := usage.GetOwnerReferences()
	binding := u.bindings.get(usage.GetNamespace() + "/" + name)
	switch {
	case binding == nil:
		usage.SetOwnerReferences(slices.DeleteFunc(owners, func(ref metav1.OwnerReference) bool { return ref.Kind == "ServiceBinding" }))
		return usage, "ServiceBindingGetError", fmt.Errorf("while getting ServiceBinding %q from namespace %q: not found", name, usage.GetNamespace())
	case !slices.ContainsFunc(owners, func(ref metav1.OwnerReference) bool { return ref.Kind == "ServiceBinding" && ref.Name == name }):
		usage.SetOwnerReferences(append(owners, ownerReference(binding)))
	}
	if !isReady(binding) {
		return usage, "ServiceBindingNotReadyError", fmt.Errorf("cannot use ServiceBinding %s/%s which is not in ready state", usage.GetNamespace(), name)
	}
	preset, err := u.preset(ctx, usage, name)
	if err != nil {
		return usage, "PodPresetUpsertError", err
	}
	if err := u.label(ctx, preset, true); err != nil {
		return usage, "EnsureLabelsAppliedError", err
	}
	return usage, "", nil
}

func presetKey(usage string) string {
	namespace, name := splitKey(usage)
	hash := sha1.Sum([]byte(name))
	return namespace + "/" + hex.EncodeToString(hash[:])
}

// preset makes the PodPreset of a usage. One of another usage of that name is replaced, and its
// label reverted. The Secret is named as the binding, whatever the binding says.
func (u *BindingUsages) preset(ctx context.Context, usage *unstructured.Unstructured, binding string) (*unstructured.Unstructured, error) {
	namespace, name := splitKey(presetKey(keyOf(usage)))
	label, workload := "use-"+string(usage.GetUID()), text(usage, "spec", "usedBy", "name")
	if existing := u.presets.get(namespace + "/" + name); existing != nil {
		if match, _, _ := unstructured.NestedStringMap(existing.Object, "spec", "selector", "matchLabels"); match[label] != "" &&
			existing.GetAnnotations()[workloadAnnotation] == workload {
			return existing, nil
		}
		if err := u.revert(ctx, existing); err != nil {
			return nil, err
		}
	}
	preset := object(u.presets.gvk, namespace, name, map[string]any{"spec": map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{label: usage.GetResourceVersion()}},
		"envFrom":  []any{map[string]any{"secretRef": map[string]any{"name": binding}}},
	}})
	preset.SetAnnotations(map[string]string{usageAnnotation: usage.GetName(), workloadAnnotation: workload})
	return preset, u.presets.create(ctx, preset)
}

// revert undoes what was made for a usage.
func (u *BindingUsages) revert(ctx context.Context, preset *unstructured.Unstructured) error {
	if preset == nil {
		return nil
	}
	if err := u.label(ctx, preset, false); err != nil {
		return err
	}
	return remove(ctx, u.presets, preset)
}

// label sets the labels by which a PodPreset finds the pods of the workload, or removes them.
func (u *BindingUsages) label(ctx context.Context, preset *unstructured.Unstructured, on bool) error {
	key := preset.GetNamespace() + "/" + preset.GetAnnotations()[workloadAnnotation]
	workload := u.workloads.get(key)
	if workload == nil {
		if on {
			return fmt.Errorf("while ensuring labels on %q: not found", key)
		}
		return nil
	}
	path := []string{"spec", "template", "metadata", "labels"}
	all, _, _ := unstructured.NestedStringMap(workload.Object, path...)
	before := maps.Clone(all)
	match, _, _ := unstructured.NestedStringMap(preset.Object, "spec", "selector", "matchLabels")
	for label, value := range match {
		if all[label] = value; !on {
			delete(all, label)
		}
	}
	if maps.Equal(before, all) {
		return nil
	}
	workload = workload.DeepCopy()
	if err := unstructured.SetNestedStringMap(workload.Object, all, path...); err != nil {
		return err
	}
	return u.workloads.update(ctx, workload)
}

// status writes owner references and condition of the usage, if either changes. The CRD has no
// status subresource.
func (u *BindingUsages) status(ctx context.Context, usage *unstructured.Unstructured, status, reason, message string) error {
	conds := conditionsOf(usage)
	conds.mark("Ready", status, reason, message)
	before := u.usages.get(keyOf(usage))
	if before == nil || before.GetUID() != usage.GetUID() || conditionsOf(before)["Ready"] == conds["Ready"] &&
		equality.Semantic.DeepEqual(before.GetOwnerReferences(), usage.GetOwnerReferences()) {
		return nil
	}
	usage.Object["status"] = map[string]any{"conditions": conds.list()}
	return kubernetes.IgnoreNotFound(errors.Unwrap(u.usages.update(ctx, usage)))
}

// Credentials returns what a pod of the workload would find in its environment, were it started
// now: the data of the Secrets of all PodPresets that apply to it. A Secret that is missing keeps
// the pod from starting, and is an error.
func (u *BindingUsages) Credentials(ctx context.Context, namespace, workload string) (map[string]string, error) {
	deployment, err := u.client.Resource(Deployments).Namespace(namespace).Get(ctx, workload, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot get Deployment %s/%s: %w", namespace, workload, err)
	}
	labels, _, _ := unstructured.NestedStringMap(deployment.Object, "spec", "template", "metadata", "labels")
	presets, err := u.client.Resource(PodPresets).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list PodPresets: %w", err)
	}
	credentials := map[string]string{}
	for i := range presets.Items {
		match, _, _ := unstructured.NestedStringMap(presets.Items[i].Object, "spec", "selector", "matchLabels")
		applies := true
		for key, value := range match {
			applies = applies && labels[key] == value
		}
		if !applies {
			continue
		}
		from, _, _ := unstructured.NestedSlice(presets.Items[i].Object, "spec", "envFrom")
		for _, item := range from {
			name := text(&unstructured.Unstructured{Object: item.(map[string]any)}, "secretRef", "name")
			secret, err := u.client.Resource(Secrets).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("cannot get Secret %s/%s of PodPreset %s: %w", namespace, name, presets.Items[i].GetName(), err)
			}
			data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
			for key, value := range data {
				raw, err := base64.StdEncoding.DecodeString(value)
				if err != nil {
					return nil, fmt.Errorf("cannot read Secret %s/%s: %w", namespace, name, err)
				}
				credentials[key] = string(raw)
			}
		}
	}
	return credentials, nil
}

// WaitReady returns when all usages of the namespace are Ready, and there are as many.
func (u *BindingUsages) WaitReady(ctx context.Context, namespace string, n int) error {
	ready, all := 0, 0
	err := u.await(ctx, func() bool {
		ready, all = 0, 0
		for _, obj := range u.usages.informer.GetStore().List() {
			if usage := obj.(*unstructured.Unstructured); usage.GetNamespace() == namespace {
				all++
				if isReady(usage) && usage.GetDeletionTimestamp() == nil {
					ready++
				}
			}
		}
		return all == n && ready == n
	})
	if err != nil {
		return fmt.Errorf("%d of %d ServiceBindingUsages of Namespace %s are Ready, want %d: %w", ready, all, namespace, n, err)
	}
	return nil
}
