//go:build slow || soak

package jobmanager

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// growSubject is the job for the suite; what is left to do is put by reset.
func growSubject(t *testing.T, d *database, reset func(context.Context, testing.TB)) suite.Subject {
	t.Helper()
	return suite.Subject{
		Name: "grow-pvc", Binary: link(t, "grow-pvc"), Args: []string{"--statefulset=data/db", "--size=5Gi", "--adopt-timeout=20s"}, BrokenArgs: []string{"--adopt-timeout=2s"},
		Kubeconfig: cluster.Kubeconfig, Admin: cluster.Config(), Audit: cluster,
		Reset: reset,
		Done: func(ctx context.Context, t testing.TB) {
			t.Helper()
			if got := d.sizes(ctx, t); !slices.Equal(got, []string{"5Gi", "5Gi/5Gi", "5Gi/5Gi"}) {
				t.Errorf("sizes %q", got)
			}
			d.intact(ctx, t)
		},
		// A pod of somebody else that looks like one of its own: it is never adopted.
		Break: func(ctx context.Context, t testing.TB) func() {
			t.Helper()
			holder := put(t, "ConfigMap", object(t, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: data, name: holder}}`))
			intruder := object(t, `{apiVersion: v1, kind: Pod, metadata: {namespace: data, name: intruder, labels: {app: db}}, spec: {containers: [{name: c, image: i}]}}`)
			intruder.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "holder", UID: holder.GetUID(), Controller: new(true)}})
			put(t, "Pod", intruder)
			return func() {
				for _, o := range [][2]string{{"Pod", "intruder"}, {"ConfigMap", "holder"}} {
					err := resource(o[0], dataNamespace).Delete(context.WithoutCancel(ctx), o[1], metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
					if err != nil && !apierrors.IsNotFound(err) {
						t.Error(err)
					}
				}
			}
		},
	}
}

// TestGrowPVCKilled kills the job at each of its writes: nothing is lost, no pod and
// no claim, and the next run finishes.
func TestGrowPVCKilled(t *testing.T) {
	d := newDatabase(t)
	s := growSubject(t, d, func(ctx context.Context, t testing.TB) { t.Helper(); d.reset(ctx, t, true) })
	t.Run("KillForward", func(t *testing.T) { suite.KillForward(t, s) })
	t.Run("NoWriteWhenDone", func(t *testing.T) { suite.NoWriteWhenDone(t, s) })
}
