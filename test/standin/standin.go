// Package standin is a stand-in for the controllers of a Kyma 1.10 cluster, for
// tests and the demo: what they do with an Application's HTTPSource, in one
// process, over the real API server. It is true to what those controllers do,
// oddities included:
//
//   - The HTTPSource controller gets or creates a Channel of the HTTPSource's
//     name with no look at its owner, and the adapter's Knative Service only
//     once that Channel has an address. It returns before it writes any status
//     if the Channel cannot be made, never sets observedGeneration, writes
//     SinkURI with a capital letter, and has no resync.
//   - Knative Eventing gives a Channel its address and Ready; the backing
//     NatssChannel and the webhook's annotations are not made.
//   - Knative Serving makes the adapter ready; its Configuration, Revision,
//     Route and Deployment are not made.
//
// The stand-in omits Kubernetes Events, and the intermediate states that the real controllers write
// when they take turns (faults with a delay show them).
//
// Owned objects carry controller references with the owner's UID; removing them
// is left to the real garbage collector.
//
// Names, labels and shapes are spelt out here a second time rather than taken
// from the product's packages: a wrong name there must not be wrong here too.
package standin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/kyma-project/eventmesh-migration/test/node"
)

// UserAgent tells the stand-in's requests from others in the audit log.
const UserAgent = node.UserAgent

// Options of Start. The zero value is what tests want.
type Options struct {
	// Workers is how many names are reconciled side by side; 0: 8.
	Workers int
	// Log gets what went wrong and is tried again; nil: nobody.
	Log func(format string, args ...any)
	// RealKnative leaves Channels, Brokers, Triggers and Knative Subscriptions to the
	// real Knative Eventing, which is at work: no fault breaks them.
	RealKnative bool
	// Kyma111 lets Start be the HTTPSource controller of Kyma 1.11: another adapter, with
	// the label application-name and an Istio Policy for each of its revisions, and the
	// condition PolicyCreated.
	Kyma111 bool
	// ControllerPods: StartMesh makes the pods of the subscription-controller, too, in
	// a cluster without a controller of Deployments, and its status.
	ControllerPods bool
	// Knative010 lets StartMesh be the Knative Eventing of Kyma 1.10, where that is at
	// v1alpha1; else it is that of 1.11.
	Knative010 bool
	// Activated: StartMesh serves Kyma Subscriptions although there is no EventActivation
	// of their source, for clusters in which nothing makes one.
	Activated bool
}

// Controllers are the running controllers.
type Controllers struct {
	log    func(format string, args ...any)
	client dynamic.Interface
	// realKnative makes Channels ready, and not these.
	realKnative, kyma111 bool
	faults               *faults
	queue                workqueue.TypedRateLimitingInterface[string]
	// The three kinds that share names; a key "namespace/name" stands for all.
	sources, channels, services *store
	firstSeen                   sync.Map // UID, time.Time

	changes
	busy int // workers that are reconciling

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Start runs the controllers until Stop or the end of ctx. Knative's kinds are
// used at the version that the API server prefers.
func Start(ctx context.Context, cfg *rest.Config, opts Options) (*Controllers, error) {
	if opts.Workers == 0 {
		opts.Workers = 8
	}
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	client, served, err := connect(cfg)
	if err != nil {
		return nil, err
	}
	c := &Controllers{
		log: opts.Log, client: client, realKnative: opts.RealKnative, kyma111: opts.Kyma111,
		faults: newFaults(),
		// The real controllers' back-off grows to minutes. A test that heals a
		// fault is not made to wait for it: see Heal.
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Second)),
	}
	for _, kind := range []struct {
		store **store
		gvr   schema.GroupVersionResource
		kind  string
	}{
		{&c.sources, HTTPSources, "HTTPSource"},
		{&c.channels, served.channels, "Channel"},
		{&c.services, served.services, "Service"},
	} {
		s := newStore(client, kind.gvr, kind.kind)
		if err := s.watch(c.observed); err != nil {
			return nil, err
		}
		*kind.store = s
	}

	ctx, c.stop = context.WithCancel(ctx)
	if err := observe(ctx, &c.running, c.sources, c.channels, c.services); err != nil {
		c.Stop()
		return nil, err
	}
	for range opts.Workers {
		c.running.Go(func() { c.work(ctx) })
	}
	context.AfterFunc(ctx, c.queue.ShutDown)
	return c, nil
}

// Stop ends the controllers and returns when they have ended.
func (c *Controllers) Stop() {
	c.stop()
	c.queue.ShutDown()
	c.running.Wait()
}

func (c *Controllers) work(ctx context.Context) {
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		c.tell(func() { c.busy++ })
		err := c.reconcile(ctx, key)
		switch {
		case err == nil:
			c.queue.Forget(key)
		case ctx.Err() == nil:
			c.log("%s: %v", key, err)
			c.queue.AddRateLimited(key)
		}
		c.queue.Done(key)
		c.tell(func() { c.busy-- })
	}
}

func (c *Controllers) observed(key string) {
	c.queue.Add(key)
	c.tell(nil)
}

// WaitReady returns once HTTPSource, Channel and adapter of all the Applications
// are there and ready in the eyes of the controllers' own watches.
func (c *Controllers) WaitReady(ctx context.Context, apps ...string) error {
	// An Application that was ready is not asked again until all are: thousands of
	// Applications times thousands of changes are too many questions.
	next := 0
	err := c.await(ctx, func() bool {
		for next < len(apps) && c.ready(apps[next]) {
			next++
		}
		return next == len(apps)
	})
	if err != nil {
		return fmt.Errorf("%d of %d Applications are ready, %s is not: %w", next, len(apps), apps[next], err)
	}
	return nil
}

// WaitEmpty returns once the controllers see no HTTPSource, Channel or adapter
// any more, and do nothing: after Clear, a controller that was at work may have
// made one more Channel, which the garbage collector then removes.
func (c *Controllers) WaitEmpty(ctx context.Context) error {
	left := 0
	err := c.await(ctx, func() bool {
		left = c.queue.Len()
		for _, s := range []*store{c.sources, c.channels, c.services} {
			left += len(s.informer.GetStore().ListKeys())
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		left += c.busy
		return left == 0
	})
	if err != nil {
		return fmt.Errorf("%d objects are left, or being reconciled: %w", left, err)
	}
	return nil
}

func (c *Controllers) ready(app string) bool {
	for _, s := range []*store{c.sources, c.channels, c.services} {
		if !isReady(s.get(IntegrationNamespace + "/" + app)) {
			return false
		}
	}
	return true
}

// servedKinds are the resources whose version is the cluster's choice.
type servedKinds struct {
	channels, services schema.GroupVersionResource
}

// connect returns a client without limits of its own, and the served versions.
func connect(cfg *rest.Config) (dynamic.Interface, servedKinds, error) {
	client, preferred, err := dial(cfg)
	if err != nil {
		return nil, servedKinds{}, err
	}
	var missing []string
	gvr := func(group, resource string) schema.GroupVersionResource {
		if preferred[group] == "" {
			missing = append(missing, resource+"."+group)
		}
		return schema.GroupVersionResource{Group: group, Version: preferred[group], Resource: resource}
	}
	served := servedKinds{
		channels: gvr("messaging.knative.dev", "channels"),
		services: gvr("serving.knative.dev", "services"),
	}
	gvr(HTTPSources.Group, HTTPSources.Resource)
	if len(missing) > 0 {
		return nil, servedKinds{}, fmt.Errorf("cannot stand in for Kyma: not served: %v (install the CRDs first)", missing)
	}
	return client, served, nil
}
