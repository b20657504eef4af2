package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestPermissionsThatComeLate: a chart creates an account right before the Job that uses it, and
// the API server refuses until it has seen the Role. That is awaited, whichever read is the first
// to be refused, and the questions before the first write, too.
func TestPermissionsThatComeLate(t *testing.T) {
	t.Parallel()
	undeletable := working()
	undeletable[0].Verbs = undeletable[0].Verbs[:6]
	for name, at := range map[string]struct {
		first []rbacv1.PolicyRule
		says  string
	}{
		"nothing":        {says: `cannot get resource "leases"`},
		"all_but_delete": {first: undeletable, says: "delete configmaps in namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			kubeconfig, err := cluster.User(t.Context(), "late", at.first...)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			core, logs := observer.New(zap.InfoLevel)
			e, err := engine.New(cfg, s.options(func(o *engine.Options) { o.PermissionWait, o.Log = time.Minute, zap.New(core) }))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan *migration.Report, 1)
			go func() {
				done <- e.Run(t.Context(), fixed("late", func() *migration.Plan { return &migration.Plan{Units: []migration.Unit{s.creation("a")}} }))
			}()
			poll.Until(t, 30*time.Second, "the run waits", func(context.Context) error {
				for _, entry := range logs.FilterMessageSnippet("waiting").All() {
					if said, _ := entry.ContextMap()["missing"].(string); strings.Contains(said, at.says) {
						return nil
					}
				}
				return fmt.Errorf("the log has %v", logs.All())
			})
			roles := s.client.RbacV1().ClusterRoles()
			role, err := roles.Get(t.Context(), strings.TrimSuffix(filepath.Base(kubeconfig), ".kubeconfig"), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			role.Rules = working()
			if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			want(t, <-done, migration.Succeeded, migration.ExitOK)
			if s.get("a") == nil {
				t.Error("it was not made")
			}
		})
	}
}
