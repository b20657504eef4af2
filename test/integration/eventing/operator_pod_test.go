package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/kyma-project/eventmesh-migration/test/eventingpods"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestOperatorInPods: the rendered chart, and an Eventing, on a cluster whose pods are processes.
// The operator becomes ready by its own probes, installs NATS, is refused nothing, and removes what
// it installed.
func TestOperatorInPods(t *testing.T) {
	const namespace, account = "operator-in-pods", "eventing-manager"
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	core, err := clientset.NewForConfig(cluster.Config())
	check(err)
	client, err := dynamic.NewForConfig(cluster.Config())
	check(err)
	root, err := kubernetes.ModuleRoot()
	check(err)
	h, err := helm.New(ctx, root, 4)
	check(err)
	pods := eventingpods.New(t, cluster)
	url, err := pods.NATS.URL(namespace, "eventing-nats-0")
	check(err)
	url = strings.Replace(url, "127.0.0.1", "localhost", 1) // which the certificate names
	pods.More[eventingpods.Manager] = []string{"--drain-delay=1s", "--drain-watch=1s", "--nats-url=" + url, "--nats-client-url=" + url}
	mark, audit := cluster.Mark(ctx)
	_, err = core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}, metav1.CreateOptions{})
	check(err)
	_, err = core.StorageV1().StorageClasses().Create(ctx, node.Class("operator-in-pods", true, storagev1.VolumeBindingWaitForFirstConsumer), metav1.CreateOptions{})
	check(err)
	t.Cleanup(func() {
		_ = core.StorageV1().StorageClasses().Delete(context.WithoutCancel(ctx), "operator-in-pods", metav1.DeleteOptions{})
	})
	// The objects of other tests of this package would be served first, or hold the deletion up.
	for _, gvr := range []struct {
		of dynamic.NamespaceableResourceInterface
	}{{client.Resource(eventings)}, {client.Resource(subscriptions)}} {
		list, err := gvr.of.List(ctx, metav1.ListOptions{})
		check(err)
		for i := range list.Items {
			u := &list.Items[i]
			_, err := gvr.of.Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			check(err)
			check(gvr.of.Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{}))
		}
	}
	node, err := node.Start(ctx, cluster.Config(), node.Options{Run: pods.Run, Directory: t.TempDir(), Log: t.Logf})
	check(err)
	t.Cleanup(node.Stop)

	objects := operator(t, h, namespace)
	for _, u := range objects {
		gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
		of := dynamic.ResourceInterface(client.Resource(gvr))
		if u.GetNamespace() != "" {
			of = client.Resource(gvr).Namespace(namespace)
		}
		_, err := of.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
		check(err)
		if u.GetKind() != "CustomResourceDefinition" {
			t.Cleanup(func() { _ = of.Delete(context.WithoutCancel(ctx), u.GetName(), metav1.DeleteOptions{}) })
		}
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	check(node.WaitRolledOut(wait, namespace, account))

	mine := client.Resource(eventings).Namespace(namespace)
	_, err = mine.Create(ctx, object(t, "{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {name: eventing}, spec: {backend: {type: NATS, config: {natsStreamReplicas: 1}}}}"), strict)
	check(err)
	poll.Until(t, 90*time.Second, "the Eventing is Ready", func(ctx context.Context) error {
		u, err := mine.Get(ctx, "eventing", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if state, _, _ := unstructured.NestedString(u.Object, "status", "state"); state != "Ready" {
			return fmt.Errorf("%v", u.Object["status"])
		}
		return nil
	})
	check(mine.Delete(ctx, "eventing", metav1.DeleteOptions{}))
	poll.Until(t, 90*time.Second, "the Eventing is gone, and its claim stays", func(ctx context.Context) error {
		_, err := mine.Get(ctx, "eventing", metav1.GetOptions{})
		_, pods := core.CoreV1().Pods(namespace).Get(ctx, "eventing-nats-0", metav1.GetOptions{})
		claims, list := core.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
		if list == nil && len(claims.Items) != 1 {
			list = fmt.Errorf("%d claims", len(claims.Items))
		}
		return errors.Join(poll.Gone(err), poll.Gone(pods), list)
	})
	if errors.Is(audit, kubernetes.ErrNoAudit) {
		return
	}
	check(audit)
	refused, err := cluster.Requests(ctx, mark, func(r kubernetes.Request) bool {
		return r.User == "system:serviceaccount:"+namespace+":"+account && r.Code == 403
	})
	check(err)
	if len(refused) > 0 {
		t.Errorf("the operator is refused what it asks for:\n%v", refused)
	}
}
