package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/pkg/migrationtest"
)

const former, next = "registry.old.example/", "registry.new.example/team/"

// testCluster is one that can be lost. KUBECONFIG would name one that is in use.
func testCluster(t *testing.T) *rest.Config {
	t.Helper()
	kubeconfig := os.Getenv("REGISTRY_TEST_KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("set REGISTRY_TEST_KUBECONFIG to the kubeconfig of a cluster that you can lose")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestJobSurvives(t *testing.T) {
	subject := migrationtest.Subject{Job: func() migration.Job { return &Job{From: former, To: next} }, Prepare: prepare, Done: moved}
	for _, kind := range kinds {
		subject.Kinds = append(subject.Kinds, kind.GroupVersionResource)
	}
	migrationtest.Survives(t, testCluster(t), subject)
}

// workload is one without pods, so that no node is needed: its rollout is a matter of its
// controller.
func workload(kind migration.Resource, name, image string) *unstructured.Unstructured {
	labels := map[string]any{"app": name}
	spec := map[string]any{
		"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
			"nodeSelector": map[string]any{"none": "none"},
			"containers":   []any{map[string]any{"name": "main", "image": image}, map[string]any{"name": "sidecar", "image": "registry.other.example/proxy:2"}},
		}},
	}
	if kind.Kind != "DaemonSet" {
		spec["replicas"] = int64(0)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name, "namespace": "default"}, "spec": spec}}
	obj.SetGroupVersionKind(kind.GVK())
	return obj.DeepCopy()
}

// prepare makes one workload of each kind, and waits for the controllers.
func prepare(ctx context.Context, client dynamic.Interface) error {
	for _, kind := range kinds {
		in, name := kind.In(client, "default"), strings.ToLower(kind.Kind)
		if err := in.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return err
		}
		if _, err := in.Create(ctx, workload(kind, name, former+name+":1"), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, kind := range kinds {
			obj, err := kind.In(client, "default").Get(ctx, strings.ToLower(kind.Kind), metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
			seen, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
			if seen < obj.GetGeneration() || kind.Kind == "Deployment" && len(conditions) < 2 {
				return false, nil
			}
		}
		return true, nil
	})
}

// moved says what is not moved.
func moved(ctx context.Context, client dynamic.Interface) error {
	var errs []error
	job := &Job{From: former, To: next}
	for _, kind := range kinds {
		all, err := kind.In(client, "").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range all.Items {
			if len(job.move(&all.Items[i])) > 0 {
				errs = append(errs, fmt.Errorf("%s %s is not moved", kind.Kind, all.Items[i].GetName()))
			}
		}
	}
	return errors.Join(errs...)
}
