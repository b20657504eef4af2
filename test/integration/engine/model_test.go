//go:build slow || soak

package engine_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/test/model"
)

// TestModelOnRealServer plays 50 of the schedules of test/model on the real API server,
// with short waits: what the model answers must be what the server answers.
// MODEL_SEED=n plays one and tells its story, MODEL_SCHEDULES=n is how many are played.
// It is slow since its time is real.
func TestModelOnRealServer(t *testing.T) {
	serveModelKinds(t)
	first, n := uint64(1), uint64(50)
	if seed := os.Getenv("MODEL_SEED"); seed != "" {
		first, n = number(t, seed), 1
	} else if given := os.Getenv("MODEL_SCHEDULES"); given != "" {
		n = number(t, given)
	}
	slots := make(chan struct{}, 6)
	for seed := first; seed < first+n; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			// What an earlier run on the same cluster left must not be met again.
			s := model.NewSchedule(seed, fmt.Sprintf("m%d-%d-", seed, time.Now().UnixNano()%1e6))
			s.Blunt = os.Getenv("MODEL_BLUNT") != ""
			s.Quicken()
			if err := s.Play(ctx, model.NewRecorder(cluster.Config())); err != nil {
				t.Fatal(err)
			}
			for _, problem := range s.Problems() {
				t.Error(problem)
			}
			if t.Failed() || n == 1 {
				t.Logf("seed %d:\n%s", seed, s.Story())
			}
		})
	}
}

func number(t *testing.T, given string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// serveModelKinds makes the cluster serve the kinds of test/model.
func serveModelKinds(t *testing.T) {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	w, err := crds.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	missing := map[string]model.Kind{}
	for _, k := range model.Kinds {
		crd := model.CRD(k)
		missing[crd.GetName()] = k
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = crds.Delete(context.Background(), crd.GetName(), metav1.DeleteOptions{}) })
	}
	limit := time.After(time.Minute)
	for len(missing) > 0 {
		select {
		case event := <-w.ResultChan():
			crd, ok := event.Object.(*unstructured.Unstructured)
			if !ok || !isEstablished(crd) {
				continue
			}
			// Established comes a moment before the first answer: the watch of the kind
			// begins with that.
			k, wanted := missing[crd.GetName()]
			if !wanted {
				continue
			}
			kinds := client.Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Plural})
			for _, err = kinds.List(t.Context(), metav1.ListOptions{}); err != nil; _, err = kinds.List(t.Context(), metav1.ListOptions{}) {
				select {
				case <-limit:
					t.Fatalf("%s is not served: %v", crd.GetName(), err)
				case <-time.After(50 * time.Millisecond):
				}
			}
			delete(missing, crd.GetName())
		case <-limit:
			t.Fatalf("%d kinds are not served", len(missing))
		}
	}
}

func isEstablished(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}
