package trigger

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/snapshot"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// TestSuite is what every change of the job must pass. The half that deletes
// takes ten minutes more: make soak has it, with the whole suite.
func TestSuite(t *testing.T) { halves(t, suite.Quick, "Expand") }

// halves hands the named halves of the job to a suite.
func halves(t *testing.T, pass func(*testing.T, suite.Subject), names ...string) {
	t.Helper()
	p := on(t, kubernetes.KnativeV1alpha1)
	subject := suite.Subject{
		Name: "trigger-sync", Package: "./cmd/trigger-sync",
		Args:       []string{"--nats-monitoring-url=" + p.nats.URL, "--observe-publishers=0s"},
		BrokenArgs: []string{"--activation-timeout=4s"},
		// It is of the UID of a Subscription, which each cluster has anew.
		Snapshot:   snapshot.Options{IgnoreAnnotations: []string{kyma.DeliveryAnnotation}},
		Kubeconfig: p.Kubeconfig, Admin: p.Config(), Audit: p.ControlPlane,
		Break: func(ctx context.Context, t testing.TB) func() {
			t.Helper()
			ea := standin.EventActivation("crm", "without-link", "app-without-link")
			ea.SetFinalizers(nil)
			p.create(ctx, t, standin.EventActivations, ea)
			return func() {
				if err := p.client.Resource(standin.EventActivations).Namespace("crm").Delete(context.WithoutCancel(ctx), ea.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
			}
		},
	}
	subscriptions := func() []*unstructured.Unstructured {
		return []*unstructured.Unstructured{subscription("shop", "orders", "order.created"), subscription("crm", "paid", "order.paid")}
	}

	// A label that brings a Broker, and Triggers; events take the old path.
	t.Run("Expand", func(t *testing.T) {
		s := subject
		s.Reset = func(ctx context.Context, t testing.TB) {
			t.Helper()
			p.reset(ctx, t)
			p.load(ctx, t, false, subscriptions()...)
		}
		s.Done = func(ctx context.Context, t testing.TB) {
			t.Helper()
			p.wait(ctx, t, "every Trigger is ready", func(m *standin.Mesh) bool { return m.Has(p.triggers(), 2) && standin.TriggersReady(m) })
			if got := p.names(ctx, t, p.brokers(), ""); len(got) != 2 {
				t.Errorf("Brokers: %q", got)
			}
			if got := p.names(ctx, t, standin.KymaSubscriptions, ""); len(got) != 2 {
				t.Errorf("Subscriptions: %q", got)
			}
		}
		pass(t, s)
	})

	// Deletions, with and without the controller that cleans up after them. The
	// Triggers are there before: those that live events take would be kept.
	for name, replicas := range map[string]int{"Contract": 1, "ContractWithoutController": 0} {
		if !slices.Contains(names, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := subject
			s.Reset = func(ctx context.Context, t testing.TB) {
				t.Helper()
				p.reset(ctx, t)
				p.load(ctx, t, true, subscriptions()...)
				broker := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": p.brokers().GroupVersion().String(), "kind": "Broker",
					"metadata": map[string]any{"name": "default", "namespace": "shop"}, "spec": map[string]any{},
				}}
				p.create(ctx, t, p.brokers(), broker)
				for _, sub := range subscriptions() {
					p.create(ctx, t, p.triggers(), p.trigger(sub))
				}
				p.wait(ctx, t, "every Trigger is ready", func(m *standin.Mesh) bool { return m.Has(p.triggers(), 2) && standin.TriggersReady(m) })
				if replicas == 0 {
					p.scale(ctx, t, 0)
				}
			}
			s.Done = func(ctx context.Context, t testing.TB) {
				t.Helper()
				for what, left := range map[string][]string{
					"Subscriptions":                         p.names(ctx, t, standin.KymaSubscriptions, ""),
					"Knative Subscriptions of the old path": p.names(ctx, t, p.links(), standin.SystemNamespace),
					"Channels of the old path":              p.names(ctx, t, p.channels(), standin.SystemNamespace),
				} {
					if len(left) > 0 {
						t.Errorf("%s: %q", what, left)
					}
				}
				if got := p.names(ctx, t, p.triggers(), ""); !slices.Equal(got, []string{"crm/paid", "shop/orders"}) {
					t.Errorf("Triggers: %q", got)
				}
			}
			pass(t, s)
		})
	}
}

// trigger is one that somebody made for a Subscription.
func (p *plane) trigger(sub *unstructured.Unstructured) *unstructured.Unstructured {
	spec := sub.Object["spec"].(map[string]any)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": p.triggers().GroupVersion().String(), "kind": "Trigger",
		"metadata": map[string]any{"name": sub.GetName(), "namespace": sub.GetNamespace()},
		"spec": map[string]any{
			"broker":     "default",
			"filter":     map[string]any{"attributes": map[string]any{"source": spec["source_id"], "type": spec["event_type"], "eventtypeversion": spec["event_type_version"]}},
			"subscriber": map[string]any{"uri": spec["endpoint"]},
		},
	}}
}
