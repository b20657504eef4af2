package model_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/kyma-project/eventmesh-migration/test/model"
)

// TestServerAnswers holds the model against what the real server answers.
func TestServerAnswers(t *testing.T) {
	other, stale := types.UID("other"), "1"
	for _, tc := range []struct {
		reason string
		do     func(s *sandbox) error
		want   func(error) bool
	}{
		{"a missing object", func(s *sandbox) error {
			_, err := s.maps().Get(s.t.Context(), "none", metav1.GetOptions{})
			return err
		}, apierrors.IsNotFound},
		{"a second one of that name", func(s *sandbox) error {
			_, err := s.maps().Create(s.t.Context(), s.object("a", nil), metav1.CreateOptions{})
			return err
		}, apierrors.IsAlreadyExists},
		{"a namespace that does not exist", func(s *sandbox) error {
			obj := s.object("a", nil)
			obj.SetNamespace("none")
			_, err := s.user.Resource(configMaps.GroupVersionResource).Namespace("none").Create(s.t.Context(), obj, metav1.CreateOptions{})
			return err
		}, apierrors.IsNotFound},
		{"deletion of another UID", func(s *sandbox) error {
			return s.maps().Delete(s.t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
		}, apierrors.IsConflict},
		{"deletion of another version", func(s *sandbox) error {
			return s.maps().Delete(s.t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &stale}})
		}, apierrors.IsConflict},
		{"an update of another version", func(s *sandbox) error {
			obj := s.object("a", map[string]any{"k": "new"})
			obj.SetResourceVersion(stale)
			_, err := s.maps().Update(s.t.Context(), obj, metav1.UpdateOptions{})
			return err
		}, apierrors.IsConflict},
		{"a merge patch of another version", func(s *sandbox) error {
			return s.patch("a", types.MergePatchType, `{"metadata":{"resourceVersion":"1"},"data":{"k":"new"}}`)
		}, apierrors.IsConflict},
		{"a merge patch of another UID", func(s *sandbox) error {
			return s.patch("a", types.MergePatchType, `{"metadata":{"uid":"other"},"data":{"k":"new"}}`)
		}, apierrors.IsConflict},
		{"a JSON patch whose test fails", func(s *sandbox) error {
			return s.patch("a", types.JSONPatchType, `[{"op":"test","path":"/data/k","value":"x"},{"op":"remove","path":"/data/k"}]`)
		}, apierrors.IsInvalid},
		{"a JSON patch of another UID", func(s *sandbox) error {
			return s.patch("a", types.JSONPatchType, `[{"op":"test","path":"/metadata/uid","value":"x"},{"op":"remove","path":"/data/k"}]`)
		}, apierrors.IsInvalid},
		{"a new finalizer while it is being deleted", func(s *sandbox) error {
			if err := s.patch("a", types.MergePatchType, `{"metadata":{"finalizers":["x/y"]}}`); err != nil {
				return err
			}
			if err := s.maps().Delete(s.t.Context(), "a", metav1.DeleteOptions{}); err != nil {
				return err
			}
			return s.patch("a", types.MergePatchType, `{"metadata":{"finalizers":["x/y","x/z"]}}`)
		}, apierrors.IsInvalid},
		{"a watch of a version that is forgotten", func(s *sandbox) error {
			s.server.Compact()
			_, err := s.maps().Watch(s.t.Context(), metav1.ListOptions{ResourceVersion: "1"})
			return err
		}, func(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }},
		{"a continue token that is forgotten", func(s *sandbox) error {
			s.put("b", nil)
			page, err := s.maps().List(s.t.Context(), metav1.ListOptions{Limit: 1})
			if err != nil {
				return err
			}
			s.server.Compact()
			_, err = s.maps().List(s.t.Context(), metav1.ListOptions{Limit: 1, Continue: page.GetContinue()})
			return err
		}, apierrors.IsResourceExpired},
		{"what is denied", func(s *sandbox) error {
			s.server.Deny(func(p model.Permission) bool { return p.Verb == "delete" })
			return s.maps().Delete(s.t.Context(), "a", metav1.DeleteOptions{})
		}, apierrors.IsForbidden},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSandbox(t)
			s.put("a", map[string]any{"k": "v"})
			if err := tc.do(s); !tc.want(err) {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func (s *sandbox) patch(name string, how types.PatchType, patch string) error {
	_, err := s.maps().Patch(s.t.Context(), name, how, []byte(patch), metav1.PatchOptions{})
	return err
}

// TestServerKeeps is what the model stores, and what it deletes by itself.
func TestServerKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSandbox(t)
		client, err := kubernetes.NewForConfig(s.server.Client("typed").Config())
		if err != nil {
			t.Fatal(err)
		}
		s.put("owner", nil)
		owner := s.get("owner")["metadata"].(map[string]any)
		child := s.object("child", nil)
		child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: types.UID(owner["uid"].(string))}})
		child.SetFinalizers([]string{"x/y"})
		if _, err := s.maps().Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		// A dry run stores nothing, an update that changes nothing has no version.
		if _, err := s.maps().Create(t.Context(), s.object("dry", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil || s.get("dry") != nil {
			t.Errorf("a dry run stored something, or failed: %v", err)
		}
		before, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), "owner", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if after, err := client.CoreV1().ConfigMaps("shop").Update(t.Context(), before, metav1.UpdateOptions{}); err != nil || after.ResourceVersion != before.ResourceVersion {
			t.Errorf("an update that changes nothing: %v", err)
		}
		if err := s.maps().Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := s.get("child"); got == nil || got["metadata"].(map[string]any)["deletionTimestamp"] == nil {
			t.Errorf("what belonged to the deleted object is not being deleted: %v", got)
		}
		if err := s.patch("child", types.JSONPatchType, `[{"op":"remove","path":"/metadata/finalizers"}]`); err != nil || s.get("child") != nil {
			t.Errorf("it is not gone with its last finalizer: %v", err)
		}
		for _, name := range []string{"a", "b", "c"} {
			s.put(name, nil)
		}
		page, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 2})
		if err != nil || len(page.Items) != 2 || page.Continue == "" {
			t.Fatalf("a page of two: %d, %q, %v", len(page.Items), page.Continue, err)
		}
		s.put("d", nil)
		page, err = client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 2, Continue: page.Continue})
		if err != nil || len(page.Items) != 1 || page.Continue != "" {
			t.Errorf("the second page is that of the first's time: %d, %q, %v", len(page.Items), page.Continue, err)
		}
		heads, err := metadata.NewForConfig(s.server.Client("metadata").Config())
		if err != nil {
			t.Fatal(err)
		}
		list, err := heads.Resource(configMaps.GroupVersionResource).Namespace("shop").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=d"})
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != "d" || list.Items[0].Kind != "PartialObjectMetadata" {
			t.Errorf("metadata only: %+v, %v", list, err)
		}
		if err := client.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for key := range s.server.Objects() {
			if key.Namespace == "shop" || key.Name == "shop" {
				t.Errorf("%s is left of a deleted namespace", key)
			}
		}
	})
}

// TestServerWatches begins at a version, and shows an object that does not match any
// more as deleted.
func TestServerWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSandbox(t)
		s.put("a", nil)
		list, err := s.maps().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, patch := range []string{`{"metadata":{"labels":{"l":"1"}}}`, `{"data":{"k":"v"}}`, `{"metadata":{"labels":{"l":null}}}`, `{"metadata":{"labels":{"l":"1"}}}`} {
			if err := s.patch("a", types.MergePatchType, patch); err != nil {
				t.Fatal(err)
			}
		}
		w, err := s.maps().Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), LabelSelector: "l=1"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		if err := s.maps().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for i, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Added, watch.Deleted} {
			if got := <-w.ResultChan(); got.Type != want || got.Object.(*unstructured.Unstructured).GetName() != "a" {
				t.Errorf("event %d: got %v, want %s", i, got, want)
			}
		}
	})
}

// TestClientIsKilled at a call that had its effect, or had not.
func TestClientIsKilled(t *testing.T) {
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSandbox(t)
			client := s.server.Client("process")
			c, err := kubernetes.NewForConfig(client.Config())
			if err != nil {
				t.Fatal(err)
			}
			w, err := c.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{ResourceVersion: "2"})
			if err != nil {
				t.Fatal(err)
			}
			kill := func(r *model.Request) {
				if r.Verb == "delete" {
					client.Kill()
				}
			}
			if after {
				client.After(kill)
			} else {
				client.Before(kill)
			}
			err = c.CoreV1().Namespaces().Delete(context.Background(), "shop", metav1.DeleteOptions{})
			if err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "gone") {
				t.Errorf("its call is answered: %v", err)
			}
			time.Sleep(time.Second)
			_, left := s.server.Objects()[model.Key{Plural: "namespaces", Name: "shop"}]
			if left == after {
				t.Errorf("killed after the effect: %t; the object is there: %t", after, left)
			}
			for range w.ResultChan() {
			}
		})
	}
}
