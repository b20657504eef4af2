package controller

import (
	"context"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

const (
	// saidBudget is how long one list of what the controller says is tried, and saidAgain the pause
	// after one that has failed.
	saidBudget = 10 * time.Second
	saidAgain  = 10 * time.Second
)

// watchSaid repeats what this process says as the leader when somebody deletes or changes that. The
// operator waits for it.
func (c *Controller) watchSaid(client dynamic.Interface) func(context.Context) error {
	name := c.options.Names.ControllerState()
	warn := func(err error) {
		c.log.Warn("cannot watch what the controller says, retrying", zap.String("configMap", c.options.Namespace+"/"+name), zap.Error(err))
	}
	configMaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(c.options.Namespace)
	return func(ctx context.Context) error {
		is := k8sutil.NewCollection(configMaps, k8sutil.Named(name), nil, k8sutil.Retrying(saidBudget, warn))
		if is.ListUntil(ctx, saidAgain, warn) != nil {
			return nil
		}
		is.Watch(ctx, func(string) { c.backends.add(c.backendsKey(), 0) })
		<-ctx.Done()
		return nil
	}
}
