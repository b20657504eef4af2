package standin

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// ClearServices removes what tests with application-broker leave behind, finalizers or not: usages,
// bindings and their Secrets, instances, EventActivations, Knative Subscriptions and Channels in
// kyma-integration, Policies, mappings, and what Service Catalog knows of brokers. The broker and
// Service Catalog may run, but the webhooks must: without them nothing of Service Catalog can be
// changed. It returns when all that is gone. Namespaces keep their labels.
func ClearServices(ctx context.Context, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS = UserAgent, -1
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	if err := guard(ctx, client); err != nil {
		return err
	}
	messaging, err := preferredVersion(cfg, "messaging.knative.dev")
	if err != nil {
		return err
	}
	knative := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "messaging.knative.dev", Version: messaging, Resource: resource}
	}
	// In the order in which one brings about the next.
	rounds := [][]collection{
		{{gvr: ApplicationMappings}},
		{{gvr: ServiceBindingUsages}},
		{{gvr: ServiceBindings}},
		{{gvr: ServiceInstances}, {gvr: PodPresets}},
		{{gvr: EventActivations}, {gvr: knative("subscriptions")}, {gvr: knative("channels")}, {gvr: Policies}, {gvr: ServiceBrokers}},
		{{gvr: ServiceClasses}, {gvr: ServicePlans}},
	}
	for _, round := range rounds {
		group, ctx := errgroup.WithContext(ctx)
		for _, col := range round {
			group.Go(func() error { return col.clear(ctx, client) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}
