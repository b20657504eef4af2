package snapshot

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// TestRealCluster is about what only a real control plane does: churn of its
// own, and garbage collection that settles later.
func TestRealCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: starts a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c, err := kubernetes.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	config := c.Config()
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "snapshot-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{})
	})
	maps := client.CoreV1().ConfigMaps(namespace.Name)
	// A foreign cluster of EVENTMESH_TEST_KUBECONFIG has a life of its own.
	only := Options{Ignore: ignoreOthers(c, namespace.Name)}

	create := func(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
		t.Helper()
		obj, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
	remove := func(name string, policy metav1.DeletionPropagation) {
		t.Helper()
		if err := maps.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
	}
	ownedBy := func(uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: uid}
	}
	differs := func(before Snapshot, opts Options) string {
		t.Helper()
		now, err := Take(ctx, config, opts)
		if err != nil {
			t.Fatal(err)
		}
		return Diff(before, now)
	}
	settles := func(before Snapshot) {
		t.Helper()
		diff, err := AwaitEqual(ctx, config, before, only)
		if err != nil {
			t.Fatal(err)
		}
		if diff != "" {
			t.Errorf("the cluster does not settle where it was:\n%s", diff)
		}
	}

	before, err := Stable(ctx, config, only)
	if err != nil {
		t.Fatal(err)
	}
	if len(before.Keys("Namespace")) == 0 || len(before.Keys("ServiceAccount")) == 0 {
		t.Fatalf("the snapshot of %d objects lacks namespaces or service accounts", len(before.Keys("")))
	}
	t.Logf("%d objects", len(before.Keys("")))

	// What the garbage collector takes is gone only after a while.
	owner := create("owner")
	create("owned", ownedBy(owner.UID))
	name := fmt.Sprintf("%s/owned", namespace.Name)
	if diff := differs(before, only); !strings.Contains(diff, "+ ConfigMap "+name) {
		t.Errorf("two new ConfigMaps are no difference:\n%s", diff)
	}
	withOwner, err := Stable(ctx, config, only)
	if err != nil {
		t.Fatal(err)
	}
	remove("owner", metav1.DeletePropagationBackground)
	settles(before)

	// An owner created again has another UID, and its dependents follow.
	owner = create("owner")
	create("owned", ownedBy(owner.UID))
	settles(withOwner)

	// Equal is not untouched.
	raw := Options{Raw: true, Ignore: only.Ignore}
	untouched, err := Stable(ctx, config, raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := differs(untouched, raw); diff != "" {
		t.Errorf("the cluster changes by itself:\n%s", diff)
	}
	for _, value := range []string{`"x"`, `null`} {
		if _, err := maps.Patch(ctx, "owner", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":`+value+`}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := differs(withOwner, only); diff != "" {
		t.Errorf("a label put on and taken off again is a difference:\n%s", diff)
	}
	if diff := differs(untouched, raw); !strings.Contains(diff, "resourceVersion") {
		t.Errorf("a label put on and taken off again leaves no trace in the raw snapshot:\n%s", diff)
	}

	start := time.Now()
	differs(before, only)
	t.Logf("a snapshot took %s", time.Since(start).Round(time.Millisecond))
}

func ignoreOthers(c *kubernetes.ControlPlane, namespace string) func(*unstructured.Unstructured) bool {
	return func(obj *unstructured.Unstructured) bool {
		return !c.Own() && obj.GetNamespace() != namespace && obj.GetName() != namespace
	}
}
