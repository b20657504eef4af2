package eventingmanager_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/velero"
)

var volumes = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}

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
	to, revive, ids := s.withBacklog("before", 20)
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
		s.check(velero.Lose(t.Context(), s.core, s.client, s.namespace))
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
