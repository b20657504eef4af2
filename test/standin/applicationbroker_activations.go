package standin

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// Activations stand in for the part of the Event Bus's subscription-controller that holds
// EventActivations by a finalizer (docs/migration/domain.md §0.6): while its Deployment has
// replicas, an EventActivation gets the finalizer, and one that is deleted goes; without it, one
// that is deleted stays. What becomes of the Kyma Subscriptions of its source is left out. Mesh
// does not do this part.
type Activations struct {
	*loop
	activations, deployments *store
}

// StartActivations runs the controller until Stop or the end of ctx.
func StartActivations(ctx context.Context, cfg *rest.Config, opts Options) (*Activations, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS = UserAgent, -1
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	a := &Activations{
		loop:        newLoop(ctx, opts.Log, time.Second),
		activations: newStore(client, EventActivations, "EventActivation"),
		deployments: newStore(client, Deployments, "Deployment"),
	}
	if err := a.watch(a.deployments, func(key string) {
		if key == SystemNamespace+"/"+SubscriptionController {
			for _, activation := range a.activations.informer.GetStore().ListKeys() {
				a.queue.Add(activation)
			}
		}
	}); err != nil {
		a.end()
		return nil, err
	}
	if err := a.watch(a.activations, a.queue.Add); err != nil {
		a.end()
		return nil, err
	}
	a.run(a.reconcile)
	return a, nil
}

// Stop ends the controller.
func (a *Activations) Stop() { a.end() }

func (a *Activations) reconcile(ctx context.Context, key string) error {
	deployment := a.deployments.get(SystemNamespace + "/" + SubscriptionController)
	if deployment == nil {
		return nil
	}
	if n, ok, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas"); ok && n == 0 {
		return nil
	}
	ea := a.activations.get(key)
	if ea == nil {
		return nil
	}
	held := slices.Contains(ea.GetFinalizers(), BusFinalizer)
	if held != (ea.GetDeletionTimestamp() != nil) {
		return nil
	}
	ea = ea.DeepCopy()
	if held {
		ea.SetFinalizers(slices.DeleteFunc(ea.GetFinalizers(), func(f string) bool { return f == BusFinalizer }))
	} else {
		ea.SetFinalizers(append(ea.GetFinalizers(), BusFinalizer))
	}
	// The answer to the last update of an object that goes is not its newest state: it does not
	// exist.
	_, err := a.activations.resource.Namespace(ea.GetNamespace()).Update(ctx, ea, metav1.UpdateOptions{})
	return kubernetes.IgnoreNotFound(err)
}
