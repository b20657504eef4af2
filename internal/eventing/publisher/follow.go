package publisher

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// readBudget is how long one read of the ConfigMap is tried, readAgain the pause before the next
// one.
const (
	readBudget = time.Minute
	readAgain  = time.Second
)

// Follow reads a ConfigMap of backends, the labels of Applications, and for NATS the files of the
// credentials, and follows them until ctx ends. It may list and watch the one ConfigMap, and
// Applications. An error means that it cannot watch the files.
func (p *Publisher) Follow(ctx context.Context, client dynamic.Interface, namespace, name string) error {
	go p.followBackends(ctx, client, namespace, name)
	go p.applications.follow(ctx, client, p.log)
	return p.way.follow(ctx)
}

func (p *Publisher) followBackends(ctx context.Context, client dynamic.Interface, namespace, name string) {
	log := p.log.With(zap.String("configMap", namespace+"/"+name))
	warn := func(err error) { log.Warn("cannot read the backends, retrying", zap.Error(err)) }
	one := k8sutil.NewCollection(client.Resource(configMaps).Namespace(namespace),
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}, nil,
		func(ctx context.Context, op func(context.Context) error) error {
			return k8sutil.Retry(ctx, readBudget, warn, op)
		})
	for {
		err := one.List(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		warn(err)
		if k8sutil.Sleep(ctx, readAgain) != nil {
			return
		}
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
	p.way.use(&b)
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
