package standin

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// changes wakes the callers that wait for one.
type changes struct {
	mu      sync.Mutex    // guards what tell changes, too
	changed chan struct{} // closed when anything changes; nil if nobody waits
}

// tell the waiting callers about a change; nil if it is made already.
func (c *changes) tell(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if change != nil {
		change()
	}
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// await asks again whenever something has changed, until it holds.
func (c *changes) await(ctx context.Context, holds func() bool) error {
	for {
		c.mu.Lock()
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		if holds() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// observe runs the informers of the stores until ctx ends. It returns when all objects that
// exist are known.
func observe(ctx context.Context, running *sync.WaitGroup, stores ...*store) error {
	for _, s := range stores {
		running.Go(func() { s.informer.RunWithContext(ctx) })
	}
	for _, s := range stores {
		if !cache.WaitForCacheSync(ctx.Done(), s.informer.HasSynced) {
			return fmt.Errorf("cannot list %s: %w", s.gvk.Kind, context.Cause(ctx))
		}
	}
	return nil
}

// dial returns a client without limits of its own, and the version of each group that the
// API server prefers.
func dial(cfg *rest.Config) (dynamic.Interface, map[string]string, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS = UserAgent, -1
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a client: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a client: %w", err)
	}
	groups, err := disco.ServerGroups()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot discover the served versions: %w", err)
	}
	preferred := map[string]string{"": "v1"}
	for _, g := range groups.Groups {
		preferred[g.Name] = g.PreferredVersion.Version
	}
	return client, preferred, nil
}
