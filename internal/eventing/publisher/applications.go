package publisher

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// typeLabel of an Application is a second name of its events: application-type in
// pkg/application of Kyma's eventing-publisher-proxy, which ignores capitals in the key.
const typeLabel = "application-type"

// typeIn is the label among those of an Application, "" if it has none. The key as it is documented
// counts before others.
func typeIn(labels map[string]string) string {
	if of, ok := labels[typeLabel]; ok {
		return of
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if strings.EqualFold(key, typeLabel) {
			return labels[key]
		}
	}
	return ""
}

var applicationKind = schema.GroupVersionResource{Group: "applicationconnector.kyma-project.io", Version: "v1alpha1", Resource: "applications"}

// applications knows the Applications that have the label. A cluster need not have the kind.
type applications struct {
	types atomic.Pointer[map[string]string] // the label by name; nil until it was asked
}

// typeOf is the label of an Application; "" if it has none, or one that says nothing.
func (a *applications) typeOf(name string) string {
	all := a.types.Load()
	if all == nil {
		return ""
	}
	if of := (*all)[name]; of != name {
		return of
	}
	return ""
}

// known tells whether the Applications were asked for.
func (a *applications) known() bool { return a.types.Load() != nil }

// follow follows the Applications until ctx ends.
func (a *applications) follow(ctx context.Context, client dynamic.Interface, log *zap.Logger) {
	all := k8sutil.NewCollection(client.Resource(applicationKind), metav1.ListOptions{},
		func(obj *unstructured.Unstructured) { delete(obj.Object, "spec"); delete(obj.Object, "status") }, retrying(log, "Applications"))
	take := func() {
		types := map[string]string{}
		all.Each(func(obj *unstructured.Unstructured) {
			if of := typeIn(obj.GetLabels()); of != "" {
				types[obj.GetName()] = of
			}
		})
		if before := a.types.Load(); before == nil || !maps.Equal(*before, types) {
			a.types.Store(&types)
		}
	}
	ok := listed(ctx, all, log, "Applications", func(err error) {
		if apierrors.IsForbidden(err) && !a.known() {
			log.Warn("may not read Applications: their label "+typeLabel+" is not looked at", zap.Error(err))
		}
		take()
	})
	if !ok {
		return
	}
	take()
	all.Watch(ctx, func(string) { take() })
}
