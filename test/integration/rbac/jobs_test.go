//go:build slow || soak

package rbac

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// journal is needed when the answer to the creation of a Secret was lost.
const journal = "update secrets in " + kyma.StateNamespace

// many runs and undoes so often that old journals go.
func (a *account) many(t *testing.T, wanted migration.Result) {
	t.Helper()
	for range 7 {
		a.run(t, wanted, "run")
		a.run(t, migration.Succeeded, "undo")
	}
}

func TestRolesAreExact(t *testing.T) {
	p := start(t, kubernetes.KnativeV1alpha1)
	ctx := t.Context()

	t.Run("state-namespace", func(t *testing.T) {
		namespaces := p.core.CoreV1().Namespaces()
		if err := namespaces.Delete(ctx, kyma.StateNamespace, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		poll.Until(t, time.Minute, "the state namespace is gone", func(ctx context.Context) error {
			_, err := namespaces.Get(ctx, kyma.StateNamespace, metav1.GetOptions{})
			return poll.Gone(err)
		})
		a := p.account(t, "state-namespace")
		a.job = "httpsource-sync" // whose image the hook uses
		a.run(t, migration.Succeeded, "create-state-namespace")
		a.run(t, migration.NothingToDo, "create-state-namespace")
		a.exactly(t, nil)
	})

	t.Run("httpsource-sync", func(t *testing.T) {
		apps, err := standin.Reset(ctx, p.Config(), 2)
		if err != nil {
			t.Fatal(err)
		}
		a := p.account(t, "httpsource-sync")
		a.many(t, migration.Succeeded)
		a.contended(t, func() { a.run(t, migration.Succeeded, "run") })
		a.run(t, migration.NothingToDo, "run")
		a.run(t, migration.Succeeded, "undo")
		p.controllers.Break(standin.AdapterNeverReady, apps[1])
		a.run(t, migration.RolledBack, "run", "--ready-timeout=1s")
		a.killed(t, func() bool {
			_, err := p.dynamic.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace).Get(ctx, apps[1], metav1.GetOptions{})
			return err == nil
		})
		p.controllers.HealAll()
		a.run(t, migration.Succeeded, "run")
		a.run(t, migration.Succeeded, "undo")
		faults := faultOnly{journal: "the answer to a creation was lost"}
		a.exactly(t, faults)
		a.refusesWithout(t, faults)
	})

	t.Run("eventservice-verify", func(t *testing.T) {
		if _, err := standin.Reset(ctx, p.Config(), 0); err != nil {
			t.Fatal(err)
		}
		if err := standin.Load(ctx, p.Config(), standin.Application("commerce", false), standin.EventService("commerce", false)); err != nil {
			t.Fatal(err)
		}
		kubelet, err := node.StartKubelet(ctx, p.Config(), standin.IntegrationNamespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(kubelet.Stop)
		if err := kubelet.WaitRolledOut(ctx, "commerce-event-service"); err != nil {
			t.Fatal(err)
		}
		a := p.account(t, "eventservice-verify")
		// Not switched, without its HTTPSource, and without one that is ready.
		a.run(t, migration.FailedResult, "run", "--per-application-timeout=1ms", "--rollout-timeout=1s")
		fresh, err := json.Marshal(map[string]any{"spec": standin.EventService("commerce", true).Object["spec"]})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.core.AppsV1().Deployments(standin.IntegrationNamespace).Patch(ctx, "commerce-event-service", types.MergePatchType, fresh, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := kubelet.WaitRolledOut(ctx, "commerce-event-service"); err != nil {
			t.Fatal(err)
		}
		a.run(t, migration.FailedResult, "run", "--per-application-timeout=1ms", "--rollout-timeout=1s")
		p.controllers.Break(standin.AdapterNeverReady, "commerce")
		if err := standin.PutHTTPSources(ctx, p.Config(), "commerce"); err != nil {
			t.Fatal(err)
		}
		a.run(t, migration.FailedResult, "run", "--per-application-timeout=1ms", "--rollout-timeout=1s")
		p.controllers.HealAll()
		if err := p.controllers.WaitReady(ctx, "commerce"); err != nil {
			t.Fatal(err)
		}
		a.run(t, migration.NothingToDo, "run")
		a.exactly(t, nil)
	})

	t.Run("eventbus-scaledown", func(t *testing.T) {
		if _, err := standin.Reset(ctx, p.Config(), 0); err != nil {
			t.Fatal(err)
		}
		reset := func() {
			t.Helper()
			if err := standin.ResetEventBus(ctx, p.Config(), standin.EventActivation("shop", "orders", "commerce")); err != nil {
				t.Fatal(err)
			}
		}
		reset()
		a := p.account(t, "eventbus-scaledown")
		a.many(t, migration.Succeeded)
		a.contended(t, func() { a.run(t, migration.Succeeded, "run") })
		a.run(t, migration.Succeeded, "undo")
		// An Application whose event-service has not switched.
		if err := standin.Load(ctx, p.Config(), standin.Application("commerce", false), standin.EventService("commerce", false)); err != nil {
			t.Fatal(err)
		}
		a.run(t, migration.DeferredResult, "run")
		if _, err := standin.Reset(ctx, p.Config(), 0); err != nil {
			t.Fatal(err)
		}
		reset()
		release := p.holdPod(t)
		a.run(t, migration.RolledBack, "run", "--pods-timeout=1s")
		release()
		faults := faultOnly{journal: "the answer to a creation was lost"}
		a.exactly(t, faults)
		a.refusesWithout(t, faults)
	})

	t.Run("eventbus-purge", func(t *testing.T) {
		a := p.account(t, "eventbus-purge")
		// The Event Bus is in use, and then is not.
		a.run(t, migration.Refused, "plan")
		for _, d := range standin.EventBus() {
			err := p.core.AppsV1().Deployments(d.GetNamespace()).Delete(ctx, d.GetName(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
		}
		a.exactly(t, nil)
	})
}

// holdPod keeps a pod of the Event Bus from going.
func (p *plane) holdPod(t *testing.T) (release func()) {
	t.Helper()
	pods := p.core.CoreV1().Pods(standin.SystemNamespace)
	list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=event-bus"})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("no pod of the Event Bus: %v", err)
	}
	set := func(finalizers string) {
		_, err := pods.Patch(t.Context(), list.Items[0].Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	set(`["example.com/hold"]`)
	return func() { set("null") }
}
