package fence_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/fence"
)

// TestTakenOver: the election of client-go takes a Lease that nobody renews by the time that people
// are told. With RetryPeriod alone, without what client-go adds to it, one of three came later.
func TestTakenOver(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			const namespace, name = "kyma-system", "lock"
			seen := time.Now()
			holder, seconds, at := "before", int32(fence.LeaseDuration/time.Second), metav1.NewMicroTime(seen)
			client := fake.NewClientset(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &at, RenewTime: &at},
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var led time.Time
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: client.CoordinationV1(),
					LockConfig: resourcelock.ResourceLockConfig{Identity: "after"},
				},
				LeaseDuration: fence.LeaseDuration, RenewDeadline: fence.RenewDeadline, RetryPeriod: fence.RetryPeriod,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(context.Context) { led = time.Now(); cancel() },
					OnStoppedLeading: func() {},
				},
			})
			synctest.Wait()
			by := fence.TakenOver(seen)
			if led.IsZero() || led.After(by) || by.Nanosecond() != 0 {
				t.Errorf("leads after %s, expected by %s", led.Sub(seen), by.Sub(seen))
			}
		})
	}
}
