package eventingmanager_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/velero"
)

var volumes = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}

// lost deletes the namespace, whatever is in it, and creates it again.
func (s *site) lost() {
	s.t.Helper()
	namespaces := s.core.CoreV1().Namespaces()
	s.check(namespaces.Delete(s.t.Context(), s.namespace, metav1.DeleteOptions{}))
	poll.Until(s.t, 2*time.Minute, "the namespace is gone", func(ctx context.Context) error {
		for _, gvr := range []schema.GroupVersionResource{eventings, subscriptions} { // nobody is left who removes these
			list, err := s.client.Resource(gvr).Namespace(s.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, u := range list.Items {
				if _, err := s.client.Resource(gvr).Namespace(s.namespace).Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
		}
		is, err := namespaces.Get(ctx, s.namespace, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("%+v", is.Status)
		}
		return poll.Gone(err)
	})
	_, err := namespaces.Create(s.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	s.check(err)
}

// snapshot is what a volume held at the time of the backup.
type snapshot struct{ volume, directory, content string }

// snapshots takes one of each volume of the namespace, by claim, and keeps the volumes.
func (s *site) snapshots() map[string]snapshot {
	s.t.Helper()
	list, err := s.client.Resource(claims).Namespace(s.namespace).List(s.t.Context(), metav1.ListOptions{})
	s.check(err)
	of := map[string]snapshot{}
	for _, claim := range list.Items {
		name, _, _ := unstructured.NestedString(claim.Object, "spec", "volumeName")
		s.patchVolume(name, `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
		volume, err := s.core.CoreV1().PersistentVolumes().Get(s.t.Context(), name, metav1.GetOptions{})
		s.check(err)
		taken := snapshot{name, volume.Spec.HostPath.Path, s.t.TempDir()}
		s.check(os.CopyFS(taken.content, os.DirFS(taken.directory)))
		of[claim.GetName()] = taken
	}
	return of
}

// refill gives the volumes what the snapshots have, and lets them be claimed again.
func (s *site) refill(of map[string]snapshot) {
	s.t.Helper()
	for _, taken := range of {
		s.check(os.RemoveAll(taken.directory))
		s.check(os.CopyFS(taken.directory, os.DirFS(taken.content)))
		s.patchVolume(taken.volume, `{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
	}
}

// bound waits until the volumes are claimed again, and lets them go with their claims.
func (s *site) bound(of map[string]snapshot) {
	s.t.Helper()
	for claim, taken := range of {
		poll.Until(s.t, time.Minute, "claim "+claim+" is bound", func(ctx context.Context) error {
			is, err := s.core.CoreV1().PersistentVolumeClaims(s.namespace).Get(ctx, claim, metav1.GetOptions{})
			if err == nil && is.Status.Phase != corev1.ClaimBound {
				err = fmt.Errorf("%+v", is.Status)
			}
			return err
		})
		s.patchVolume(taken.volume, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	}
}

func (s *site) patchVolume(name, merge string) {
	s.t.Helper()
	_, err := s.client.Resource(volumes).Patch(s.t.Context(), name, types.MergePatchType, []byte(merge), metav1.PatchOptions{})
	s.check(err)
}

// TestRestoredFromABackup: the namespace is lost, and Velero restores it, once with its volumes and
// once with empty ones.
func TestRestoredFromABackup(t *testing.T) {
	quick(t)
	s := newSite(t, "restored")
	to := s.withSinks()
	revive := deadSink(to, "orders")
	s.start()
	s.subscribe(to, "orders", "source: commerce, types: [order.created.v1]")
	s.installed()
	s.awaitSubscription("orders")
	ids := s.post("before", 20)
	for _, tc := range []struct {
		reason  string
		volumes bool
	}{
		{"with its volumes", true},
		{"without", false},
	} {
		saved, err := velero.Of(t.Context(), s.core.Discovery(), s.client, s.namespace)
		s.check(err)
		kept := map[string]snapshot{}
		if tc.volumes {
			kept = s.snapshots()
		}
		s.operator.Kill()
		s.operator.Wait()
		s.lost()
		s.refill(kept)
		saved.Restore(t.Context(), s.client, func(gvr schema.GroupVersionResource, u *unstructured.Unstructured) {
			if taken, ok := kept[u.GetName()]; ok && gvr == claims {
				s.check(unstructured.SetNestedField(u.Object, taken.volume, "spec", "volumeName"))
			}
		}, t.Logf)
		s.bound(kept)
		s.start()
		s.await(3*time.Minute, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionBackendAvailable, operatorv1alpha1.ReasonNATSAvailable)
		s.awaitSubscription("orders")
		if tc.volumes {
			if n := s.stored(); n != 20 {
				t.Errorf("%s: %d events are stored, want 20", tc.reason, n)
			}
			revive()
			to.Await(t, "orders", time.Minute, ids...)
		}
		to.Await(t, "orders", time.Minute, s.post("after"+fmt.Sprint(tc.volumes), 20)...)
	}
}
