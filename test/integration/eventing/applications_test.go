package eventing_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

var applications = schema.GroupVersionResource{Group: "applicationconnector.kyma-project.io", Version: "v1alpha1", Resource: "applications"}

// TestPublisherLabelledApplications: an event of an Application with the label application-type is
// published by its name and by its label, and by the former names of both; and a label that comes,
// changes or goes counts at once, with capitals in its key, too. All other tests of the publisher
// have a cluster without the kind.
func TestPublisherLabelledApplications(t *testing.T) {
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": applications.GroupResource().String()},
		"spec": map[string]any{
			"group": applications.Group, "scope": "Cluster", "names": map[string]any{"plural": "applications", "singular": "application", "kind": "Application"},
			"versions": []any{map[string]any{
				"name": applications.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = crds.Delete(context.WithoutCancel(t.Context()), crd.GetName(), metav1.DeleteOptions{}) })
	all := client.Resource(applications)
	application := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": applications.GroupVersion().String(), "kind": "Application",
		"metadata": map[string]any{"name": "commerce-1", "labels": map[string]any{"Application-Type": "shop-1", kubernetes.MadeForTests: "true"}},
	}}
	poll.Until(t, patience, "an Application", func(ctx context.Context) error {
		_, err := all.Create(ctx, application, metav1.CreateOptions{})
		return err
	})
	p := startNATS(t)
	from := receiver(t, p, stream.Config(wide(), "e1", true))
	pub := startPublisher(t, p, nil)
	pub.awaitReady()
	published := func(id string) []string {
		t.Helper()
		body := `{"event-type":"order.created","event-type-version":"v1","event-id":"` + id + `","event-time":"2020-03-01T13:00:00Z","data":"x"}`
		got, err := ask(t.Context(), http.MethodPost, pub.URL+"/commerce-1/v1/events", http.Header{"Content-Type": {"application/json"}}, body)
		if err != nil || got.status != http.StatusOK {
			t.Fatalf("%v %s", err, got)
		}
		var names []string
		for {
			m, err := from.Next()
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Ack(); err != nil {
				t.Fatal(err)
			}
			if is := m.Headers().Get("ce-id"); is != id {
				t.Fatalf("event %s, want %s", is, id)
			}
			names = append(names, m.Headers().Get("ce-source")+" "+m.Headers().Get("ce-type"))
			if info, err := from.Info(t.Context()); err != nil || info.NumPending == 0 {
				slices.Sort(names)
				return names
			}
		}
	}
	want := []string{
		"commerce-1 order.created.v1", "kyma sap.kyma.custom.commerce1.order.created.v1", "kyma sap.kyma.custom.shop1.order.created.v1", "shop-1 order.created.v1",
	}
	if diff := cmp.Diff(want, published("a1b2c3d4-0000-0000-0000-000000000001")); diff != "" {
		t.Errorf("with the label (-want +got):\n%s", diff)
	}
	if _, err := all.Patch(t.Context(), "commerce-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"Application-Type":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	n := 0
	poll.Until(t, 10*time.Second, "the label is gone", func(context.Context) error {
		n++
		names := published(fmt.Sprintf("a1b2c3d4-0000-0000-0000-1%011d", n))
		if diff := cmp.Diff(want[:2], names); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}
