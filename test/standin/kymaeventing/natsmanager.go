package kymaeventing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// NATSManagerImage is that of the pods of nats-manager.
const NATSManagerImage = "kyma-nats-manager"

const (
	natsManager   = "nats-manager"
	natsFinalizer = "nats.operator.kyma-project.io/finalizer"
)

var (
	natsObjects  = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1alpha1", Resource: "nats"}
	statefulSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	claims       = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
)

// natsRules are all that nats-manager may do.
var natsRules = []rbacv1.PolicyRule{
	named("eventing-nats-config", may(writes, "", "configmaps")),
	named("shoot-info", may(reads, "", "configmaps")),
	may([]string{"list", "watch"}, "", "configmaps", "secrets", "services"),
	may([]string{"create", "patch"}, "", "events"),
	may(reads, "", "nodes", "pods"),
	may([]string{"delete", "list", "watch"}, "", "persistentvolumeclaims"),
	named("eventing-nats-secret", may(writes, "", "secrets")),
	named("eventing-nats", may(writes, "", "services")),
	may(writes, "apiextensions.k8s.io", "customresourcedefinitions"),
	may([]string{"list", "watch"}, "apps", "statefulsets"),
	named("eventing-nats", may(writes, "apps", "statefulsets")),
	may([]string{"list", "watch"}, "networking.istio.io", "destinationrules"),
	named("eventing-nats", may(writes, "networking.istio.io", "destinationrules")),
	may(writes, "operator.kyma-project.io", "nats"),
	may([]string{"update"}, "operator.kyma-project.io", "nats/finalizers"),
	may([]string{"get", "patch", "update"}, "operator.kyma-project.io", "nats/status"),
	may([]string{"list", "watch"}, "policy", "poddisruptionbudgets"),
	named("eventing-nats", may(writes, "policy", "poddisruptionbudgets")),
}

// NATS is what makes nats-manager run NATS, with one server.
const NATS = `{apiVersion: operator.kyma-project.io/v1alpha1, kind: NATS, metadata: {name: eventing-nats, namespace: kyma-system},
 spec: {cluster: {size: 1}, jetStream: {fileStorage: {size: 1Gi}}}}`

// natsManifest are the objects of the module nats, without its definition.
func natsManifest() []string {
	return append(account(natsManager, "nats-manager-role", "nats-manager-rolebinding", natsRules),
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: nats-manager, namespace: kyma-system, labels: {control-plane: nats-manager, app.kubernetes.io/name: nats-manager, app.kubernetes.io/instance: nats-manager, app.kubernetes.io/component: nats-manager}},
 spec: {replicas: 1, selector: {matchLabels: {control-plane: manager}}, template: {metadata: {labels: {control-plane: manager}}, spec: {serviceAccountName: nats-manager, terminationGracePeriodSeconds: 10, containers: [{name: manager, image: "`+NATSManagerImage+`:1"}]}}}}`,
	)
}

// natsOperator is one run of nats-manager.
type natsOperator struct {
	*Kyma
	client dynamic.Interface
	conn   *nats.Conn
}

// NATSManager runs nats-manager until it is ended, with the account of its pod.
func (k *Kyma) NATSManager(ctx context.Context, pod *corev1.Pod) (Container, error) {
	client, err := k.as(ctx, pod, natsObjects)
	if err != nil {
		return nil, err
	}
	o := &natsOperator{Kyma: k, client: client}
	return k.loop(natsManager, o.reconcile, func() {}, o.close), nil
}

func (o *natsOperator) close() {
	if o.conn != nil {
		o.conn.Close()
		o.conn = nil
	}
}

func (o *natsOperator) reconcile(ctx context.Context) error {
	of := o.client.Resource(natsObjects).Namespace(namespace)
	n, err := of.Get(ctx, natsName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case n.GetDeletionTimestamp() != nil:
		return o.deleted(ctx, n)
	case !slices.Contains(n.GetFinalizers(), natsFinalizer):
		n.SetFinalizers(append(n.GetFinalizers(), natsFinalizer))
		_, err := of.Update(ctx, n, metav1.UpdateOptions{})
		return ignoreRace(err)
	}
	if err := o.apply(ctx, n); err != nil {
		return err
	}
	set, err := o.client.Resource(statefulSets).Namespace(namespace).Get(ctx, natsName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	count := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(set.Object, path...)
		return n
	}
	want := count("spec", "replicas")
	if want != count("status", "readyReplicas") || want != count("status", "updatedReplicas") {
		return o.status(ctx, n, "Processing", "", "")
	}
	return o.status(ctx, n, "Ready", "", "")
}

// apply applies its objects, again and again and by force: what is deleted or changed comes back. A
// Secret that exists is left.
func (o *natsOperator) apply(ctx context.Context, n *unstructured.Unstructured) error {
	size, _, _ := unstructured.NestedInt64(n.Object, "spec", "cluster", "size")
	selector := map[string]any{"app.kubernetes.io/name": "nats", "app.kubernetes.io/instance": eventing, "kyma-project.io/dashboard": eventing}
	object := func(apiVersion, kind, name string, more map[string]any) map[string]any {
		all := map[string]any{"app.kubernetes.io/managed-by": natsManager, "control-plane": natsManager}
		for key, value := range selector {
			all[key] = value
		}
		u := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{
			"name": name, "namespace": namespace, "labels": all, "ownerReferences": []any{map[string]any{
				"apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "NATS", "name": natsName, "uid": string(n.GetUID()), "controller": true, "blockOwnerDeletion": true,
			}},
		}}
		for key, value := range more {
			u[key] = value
		}
		return u
	}
	all := []map[string]any{
		object("v1", "ConfigMap", natsName+"-config", map[string]any{"data": map[string]any{"nats.conf": "# those of the pod's arguments"}}),
		object("policy/v1", "PodDisruptionBudget", natsName, map[string]any{"spec": map[string]any{"maxUnavailable": int64(1), "selector": map[string]any{"matchLabels": selector}}}),
		object("v1", "Service", natsName, map[string]any{"spec": map[string]any{"clusterIP": "None", "publishNotReadyAddresses": true, "selector": selector, "ports": []any{
			map[string]any{"name": "client", "port": int64(4222), "protocol": "TCP"}, map[string]any{"name": "monitor", "port": int64(8222), "protocol": "TCP"},
		}}}),
		object("apps/v1", "StatefulSet", natsName, map[string]any{"spec": map[string]any{
			"replicas": size, "serviceName": natsName, "podManagementPolicy": "Parallel", "selector": map[string]any{"matchLabels": selector},
			"template": map[string]any{"metadata": map[string]any{"labels": selector}, "spec": map[string]any{"containers": []any{map[string]any{
				"name": "nats", "image": "nats-server:test", "args": []any{"--jetstream", "--store_dir=/data"},
				"volumeMounts": []any{map[string]any{"name": natsName + "-js-pvc", "mountPath": "/data"}},
			}}}},
			"volumeClaimTemplates": []any{map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": natsName + "-js-pvc"}, "spec": map[string]any{
				"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
			}}},
		}}),
	}
	if _, err := o.client.Resource(secrets).Namespace(namespace).Get(ctx, natsName+"-secret", metav1.GetOptions{}); apierrors.IsNotFound(err) {
		all = append(all, object("v1", "Secret", natsName+"-secret", map[string]any{"stringData": map[string]any{"resolver.conf": "accounts: {}"}}))
	} else if err != nil {
		return err
	}
	for _, object := range all {
		u := &unstructured.Unstructured{Object: object}
		if _, err := o.client.Resource(resourceOf(u)).Namespace(namespace).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: natsManager, Force: true}); err != nil {
			return fmt.Errorf("cannot apply %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return nil
}

// deleted is blocked by another stream, and by any consumer. Nothing blocks it if it cannot ask:
// then it deletes the volumes, whatever they hold. Meanwhile it applies nothing.
func (o *natsOperator) deleted(ctx context.Context, n *unstructured.Unstructured) error {
	if !slices.Contains(n.GetFinalizers(), natsFinalizer) {
		return nil
	}
	if o.conn == nil || !o.conn.IsConnected() {
		o.close()
		var err error
		if o.conn, err = nats.Connect(o.options.NATS, nats.Timeout(5*time.Second), nats.Name("NATS Manager")); err != nil {
			o.conn = nil
			return o.release(ctx, n)
		}
	}
	js, err := o.conn.JetStream()
	if err != nil {
		return o.release(ctx, n)
	}
	streams := map[string]bool{}
	for is := range js.Streams() { // none, if nobody answers
		streams[is.Config.Name] = true
	}
	for name := range streams {
		if name != stream {
			return o.status(ctx, n, "Warning", "DeletionError", "Cannot delete NATS cluster as customer stream exists")
		}
	}
	if streams[stream] {
		for range js.Consumers(stream) {
			return o.status(ctx, n, "Warning", "DeletionError", "Cannot delete NATS cluster as stream consumer exists")
		}
	}
	return o.release(ctx, n)
}

// release deletes the volumes, and lets the object go: the garbage collector deletes the rest.
func (o *natsOperator) release(ctx context.Context, n *unstructured.Unstructured) error {
	of := o.client.Resource(claims).Namespace(namespace)
	list, err := of.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + eventing})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if name := list.Items[i].GetName(); strings.HasPrefix(name, natsName) {
			if err := of.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	o.close()
	n.SetFinalizers(slices.DeleteFunc(n.GetFinalizers(), func(f string) bool { return f == natsFinalizer }))
	_, err = o.client.Resource(natsObjects).Namespace(namespace).Update(ctx, n, metav1.UpdateOptions{})
	return ignoreRace(err)
}

// status replaces the status, if something of it differs.
func (o *natsOperator) status(ctx context.Context, n *unstructured.Unstructured, state, reason, message string) error {
	want := map[string]any{"state": state}
	if state == "Ready" {
		want["url"] = "nats://" + natsName + "." + namespace + ".svc.cluster.local:4222"
	}
	if reason != "" {
		want["conditions"] = []any{map[string]any{"type": "Deleted", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}}
	}
	if is, _, _ := unstructured.NestedMap(n.Object, "status"); same(is, want) {
		return nil
	}
	n.Object["status"] = want
	_, err := o.client.Resource(natsObjects).Namespace(namespace).UpdateStatus(ctx, n, metav1.UpdateOptions{})
	return ignoreRace(err)
}
