// Package velero backs up a namespace and restores it as Velero does, without its server.
//
// Each fact has a source. What is left out, and in which order the rest comes:
// https://velero.io/docs/main/restore-reference/. Objects come without UID, owners and status
// (https://github.com/velero-io/velero/issues/4707), with their finalizers and managed fields since
// 1.11 (https://github.com/velero-io/velero/pull/5808), and with two labels of Velero's. An object
// that is there is left as it is. A failure is logged, and the next object comes. What volumes hold
// is not part of it.
package velero

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// Backup is a namespace as it was.
type Backup struct {
	namespace string
	objects   map[schema.GroupVersionResource][]unstructured.Unstructured
}

// first are the kinds that come first, in this order. The others come in that of the alphabet.
var first = []string{"persistentvolumeclaims", "secrets", "configmaps", "serviceaccounts", "limitranges", "pods", "replicasets"}

// Of backs up all of a namespace but Events, and but what is to be left out: <plural>.<group>, as
// for --exclude-resources.
func Of(ctx context.Context, kinds discovery.DiscoveryInterface, client dynamic.Interface, namespace string, exclude ...string) (*Backup, error) {
	found, err := discovery.ServerPreferredNamespacedResources(kinds)
	if err != nil {
		return nil, fmt.Errorf("cannot discover what can be backed up: %w", err)
	}
	b := &Backup{namespace, map[schema.GroupVersionResource][]unstructured.Unstructured{}}
	for _, group := range found {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, kind := range group.APIResources {
			gvr := version.WithResource(kind.Name)
			if !slices.Contains(kind.Verbs, "list") || !slices.Contains(kind.Verbs, "create") || kind.Name == "events" || slices.Contains(exclude, gvr.GroupResource().String()) {
				continue
			}
			list, err := client.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
			switch {
			case apierrors.IsNotFound(err): // the kind has just gone
			case err != nil:
				return nil, fmt.Errorf("cannot back up %s: %w", kind.Name, err)
			default:
				b.objects[gvr] = list.Items
			}
		}
	}
	return b, nil
}

// Lose deletes a namespace with all that is in it, and creates it again, empty.
func Lose(ctx context.Context, core kubernetes.Interface, client dynamic.Interface, namespace string) error {
	namespaces := core.CoreV1().Namespaces()
	was, err := namespaces.Get(ctx, namespace, metav1.GetOptions{})
	if err == nil {
		err = namespaces.Delete(ctx, namespace, metav1.DeleteOptions{})
	}
	if err == nil {
		err = poll.For(ctx, 3*time.Minute, "namespace "+namespace+" is gone", func(ctx context.Context) error {
			is, err := namespaces.Get(ctx, namespace, metav1.GetOptions{})
			if err != nil {
				return poll.Gone(err)
			}
			left, err := Of(ctx, core.Discovery(), client, namespace)
			if err != nil {
				return err
			}
			left.release(ctx, client)
			return fmt.Errorf("%+v", is.Status)
		})
	}
	if err == nil {
		_, err = namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: was.Labels}}, metav1.CreateOptions{})
	}
	return err
}

// release removes finalizers, which nobody is left to remove but of pods and volume claims. What
// fails is tried again.
func (b *Backup) release(ctx context.Context, client dynamic.Interface) {
	for gvr, all := range b.objects {
		for _, u := range all {
			if len(u.GetFinalizers()) > 0 && gvr.Resource != "pods" && gvr.Resource != "persistentvolumeclaims" {
				_, _ = client.Resource(gvr).Namespace(b.namespace).Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			}
		}
	}
}

// Change changes an object before it is restored.
type Change func(gvr schema.GroupVersionResource, u *unstructured.Unstructured)

// Restore creates what is not there. change may be nil; say gets what Velero logs.
func (b *Backup) Restore(ctx context.Context, client dynamic.Interface, change Change, say func(format string, args ...any)) {
	rank := func(gvr schema.GroupVersionResource) string {
		if i := slices.Index(first, gvr.Resource); i >= 0 {
			return fmt.Sprint(i)
		}
		return gvr.GroupResource().String()
	}
	for _, gvr := range slices.SortedFunc(maps.Keys(b.objects), func(x, y schema.GroupVersionResource) int { return strings.Compare(rank(x), rank(y)) }) {
		to := client.Resource(gvr).Namespace(b.namespace)
		for _, saved := range b.objects[gvr] {
			u := restored(gvr, &saved)
			if change != nil {
				change(gvr, u)
			}
			created, err := to.Create(ctx, u, metav1.CreateOptions{FieldManager: "velero-server"})
			if err == nil {
				created.SetManagedFields(saved.GetManagedFields())
				_, err = to.Update(ctx, created, metav1.UpdateOptions{})
			}
			// Controllers may be faster than the second write.
			if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				say("velero: error restoring %s %s: %v", gvr.Resource, u.GetName(), err)
			}
		}
	}
}

// restored is what is created of an object.
func restored(gvr schema.GroupVersionResource, saved *unstructured.Unstructured) *unstructured.Unstructured {
	u := saved.DeepCopy()
	delete(u.Object, "status")
	u.Object["metadata"] = map[string]any{}
	u.SetName(saved.GetName())
	u.SetNamespace(saved.GetNamespace())
	u.SetFinalizers(saved.GetFinalizers())
	labels := map[string]string{"velero.io/backup-name": "nightly", "velero.io/restore-name": "nightly-1"}
	maps.Copy(labels, saved.GetLabels())
	u.SetLabels(labels)
	annotations := maps.Clone(saved.GetAnnotations())
	switch gvr.Resource {
	case "pods":
		unstructured.RemoveNestedField(u.Object, "spec", "nodeName")
	case "persistentvolumeclaims": // they are bound again
		maps.DeleteFunc(annotations, func(key, _ string) bool {
			return strings.HasPrefix(key, "pv.kubernetes.io/") || strings.HasPrefix(key, "volume.kubernetes.io/")
		})
		unstructured.RemoveNestedField(u.Object, "spec", "volumeName")
	case "services": // an address that Kubernetes has given may be taken
		if ip, _, _ := unstructured.NestedString(u.Object, "spec", "clusterIP"); gvr.Group == "" && ip != "None" {
			unstructured.RemoveNestedField(u.Object, "spec", "clusterIP")
			unstructured.RemoveNestedField(u.Object, "spec", "clusterIPs")
		}
	}
	u.SetAnnotations(annotations)
	return u
}
