package publisher

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// readBudget is how long one read is tried, readAgain the pause before the next one. absentAgain is
// when it is asked again whether the cluster has a kind, or whether this account may read it.
const (
	readBudget  = time.Minute
	readAgain   = time.Second
	absentAgain = time.Minute
)

// Follow reads a ConfigMap of backends, the labels of Applications, the Subscriptions, and for NATS
// the files of the credentials, and follows them until ctx ends. It may list and watch the one
// ConfigMap, Applications and Subscriptions. An error means that it cannot watch the files.
func (p *Publisher) Follow(ctx context.Context, client dynamic.Interface, namespace, name string) error {
	go p.followBackends(ctx, client, namespace, name)
	go p.applications.follow(ctx, client, p.log)
	go p.interest.follow(ctx, client, p.log)
	return p.transport.follow(ctx)
}

// retrying repeats a read that fails.
func retrying(log *zap.Logger, what string) func(context.Context, func(context.Context) error) error {
	return k8sutil.Retrying(readBudget, func(err error) { log.Warn("cannot read the "+what+", retrying", zap.Error(err)) })
}

// listed lists a collection, again and again until that succeeds; false if ctx ends before. absent
// is called each time that the cluster does not have the kind, or this account may not read it.
func listed(ctx context.Context, all *k8sutil.Collection, log *zap.Logger, what string, absent func(error)) bool {
	for {
		err := all.List(ctx)
		pause := readAgain
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			absent(err)
			pause = absentAgain
		default:
			log.Warn("cannot read the "+what+", retrying", zap.Error(err))
		}
		if k8sutil.Sleep(ctx, pause) != nil {
			return false
		}
	}
}

func (p *Publisher) followBackends(ctx context.Context, client dynamic.Interface, namespace, name string) {
	log := p.log.With(zap.String("configMap", namespace+"/"+name))
	one := k8sutil.NewCollection(client.Resource(configMaps).Namespace(namespace), k8sutil.Named(name), nil, retrying(log, "backends"))
	if one.ListUntil(ctx, readAgain, func(err error) { log.Warn("cannot read the backends, retrying", zap.Error(err)) }) != nil {
		return
	}
	p.take(one.Get(namespace, name), log)
	one.Watch(ctx, func(string) { p.take(one.Get(namespace, name), log) })
}

// take follows a state of the ConfigMap. Without one that can be read, every event is refused.
func (p *Publisher) take(configMap *unstructured.Unstructured, log *zap.Logger) {
	b, err := parse(configMap)
	if err != nil {
		log.Error("refusing every event until the backends can be read", zap.Error(err))
		p.backends.Store(nil)
		return // the connection stays: what is wrong may be right soon
	}
	log.Info("following the backends", zap.String("accept", b.Accept.String()), zap.String("epoch", b.Epoch), zap.Bool("accepting", b.Accept.Has(p.backend)))
	p.backends.Store(&b)
	p.transport.use(&b)
}

func parse(configMap *unstructured.Unstructured) (backend.Backends, error) {
	if configMap == nil {
		return backend.Backends{}, fmt.Errorf("the ConfigMap does not exist")
	}
	data, _, err := unstructured.NestedStringMap(configMap.Object, "data")
	if err != nil {
		return backend.Backends{}, err
	}
	return backend.ParseBackends(data)
}
