package suite_test

import (
	"context"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/test/controlplane"
	"github.com/kyma-project/eventmesh-migration/test/kyma"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

func TestTrial(t *testing.T) {
	if os.Getenv("TRIAL") == "" {
		t.Skip()
	}
	ctx := t.Context()
	c, err := controlplane.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	if err := c.InstallCRDs(ctx, controlplane.KnativeV1alpha1); err != nil {
		t.Fatal(err)
	}
	// controllers outlive the test's context
	k, err := kyma.Start(context.Background(), c.Config(), kyma.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	dyn, _ := dynamic.NewForConfig(c.Config())
	const n = 5
	s := suite.Subject{
		Name: "httpsource-sync", Binary: binary(t), Args: []string{"--ready-timeout=1s"},
		Kubeconfig: c.Kubeconfig, Admin: c.Config(), Audit: c,
		Reset: func(ctx context.Context, t testing.TB) {
			k.HealAll()
			if _, err := kyma.Reset(ctx, c.Config(), n); err != nil {
				t.Fatal(err)
			}
		},
		Done: func(ctx context.Context, t testing.TB) {
			list, err := dyn.Resource(schema.GroupVersionResource{Group: "sources.kyma-project.io", Version: "v1alpha1", Resource: "httpsources"}).List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != n {
				t.Errorf("%d HTTPSources", len(list.Items))
			}
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if err := k.WaitReady(ctx, kyma.Names(n)...); err != nil {
				t.Error(err)
			}
		},
		Break: func(ctx context.Context, t testing.TB) func() {
			k.Break(kyma.AdapterNeverReady, kyma.Names(n)[n-1])
			return func() { k.HealAll() }
		},
	}
	t.Run("NoWriteWhenDone", func(t *testing.T) { suite.NoWriteWhenDone(t, s) })
	t.Run("TwoRuns", func(t *testing.T) { suite.TwoRuns(t, s) })
	t.Run("SecondRunWaits", func(t *testing.T) { suite.SecondRunWaits(t, s) })
	t.Run("LockTheft", func(t *testing.T) { suite.LockTheft(t, s) })
	t.Run("Frozen", func(t *testing.T) { suite.Frozen(t, s) })
	t.Run("SIGTERM", func(t *testing.T) { suite.SIGTERM(t, s) })
	t.Run("RandomFaults", func(t *testing.T) { suite.RandomFaults(t, s, 1, 4) })
	t.Run("KillForward", func(t *testing.T) { suite.KillForward(t, s) })
	t.Run("KillUndo", func(t *testing.T) { suite.KillUndo(t, s) })
	t.Run("KillThenBack", func(t *testing.T) { suite.KillThenBack(t, s) })
	t.Run("KillRollback", func(t *testing.T) { suite.KillRollback(t, s) })
}

func binary(t *testing.T) string {
	if b := os.Getenv("TRIAL_BINARY"); b != "" {
		return b
	}
	return suite.Build(t, "./cmd/httpsource-sync")
}
