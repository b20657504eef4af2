package serviceinstance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// complete is a cluster in which one instance lacks nothing: of the service
// "orders" of the Application "store", with a binding and a usage.
const complete = `
{apiVersion: v1, kind: Namespace, metadata: {name: shop, uid: ns-1, labels: {knative-eventing-injection: enabled}}}
---
apiVersion: applicationconnector.kyma-project.io/v1alpha1
kind: Application
metadata: {name: store}
spec: {services: [{id: orders, displayName: Orders, entries: [{type: API}, {type: Events}]}, {id: prices, entries: [{type: API}]}]}
---
{apiVersion: applicationconnector.kyma-project.io/v1alpha1, kind: ApplicationMapping, metadata: {namespace: shop, name: store}}
---
{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceBroker, metadata: {namespace: shop, name: application-broker}}
---
{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceClass, metadata: {namespace: shop, name: class-1}, spec: {externalID: orders, externalName: orders-name, serviceBrokerName: application-broker}}
---
{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServicePlan, metadata: {namespace: shop, name: plan-1}, spec: {externalID: orders-plan, externalName: default, serviceBrokerName: application-broker, serviceClassRef: {name: class-1}}}
---
apiVersion: servicecatalog.k8s.io/v1beta1
kind: ServiceInstance
metadata:
  {namespace: shop, name: orders, uid: si-1, resourceVersion: "7", creationTimestamp: "2020-03-01T10:00:00Z", finalizers: [kubernetes-incubator/service-catalog]}
spec:
  {serviceClassExternalName: orders-name, servicePlanExternalName: default, serviceClassRef: {name: class-1}, servicePlanRef: {name: plan-1}, externalID: ext-1, userInfo: {username: jane}}
status: {provisionStatus: Provisioned, deprovisionStatus: Required, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: applicationconnector.kyma-project.io/v1alpha1
kind: EventActivation
metadata: {namespace: shop, name: orders, uid: ea-1, ownerReferences: [{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceInstance, name: orders, uid: si-1}]}
spec: {displayName: Orders, sourceId: store}
---
apiVersion: messaging.knative.dev/v1alpha1
kind: Subscription
metadata: {namespace: kyma-integration, name: brokersub-x, labels: {application-name: store, broker-namespace: shop}}
---
apiVersion: messaging.knative.dev/v1alpha1
kind: Channel
metadata: {namespace: kyma-integration, name: store, labels: {application-name: store}}
status: {conditions: [{type: Ready, status: "True"}]}
---
{apiVersion: eventing.knative.dev/v1alpha1, kind: Broker, metadata: {namespace: shop, name: default}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: kyma-integration, name: application-broker}
spec: {template: {spec: {containers: [{name: broker, image: "eu.gcr.io/kyma-project/application-broker:87fe96df"}]}}}
---
apiVersion: v1
kind: Pod
metadata:
  {namespace: kyma-integration, name: application-broker-5d-x, creationTimestamp: "2020-02-01T10:00:00Z", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: application-broker-5d, controller: true}]}
status: {phase: Running, startTime: "2020-02-01T10:00:05Z", conditions: [{type: Ready, status: "True"}]}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-system, name: event-bus-subscription-controller}, spec: {replicas: 1}}
---
apiVersion: servicecatalog.k8s.io/v1beta1
kind: ServiceBinding
metadata: {namespace: shop, name: orders-binding, uid: sb-1, resourceVersion: "8"}
spec: {instanceRef: {name: orders}, secretName: orders-secret, externalID: ext-2}
status: {conditions: [{type: Ready, status: "True"}]}
---
apiVersion: servicecatalog.kyma-project.io/v1alpha1
kind: ServiceBindingUsage
metadata: {namespace: shop, name: orders-usage, uid: sbu-1, resourceVersion: "9", ownerReferences: [{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceBinding, name: orders-binding, uid: sb-1}]}
spec: {serviceBindingRef: {name: orders-binding}, usedBy: {kind: deployment, name: till}}
status: {conditions: [{type: Ready, status: "True"}]}
`

// edit changes a cluster.
type edit func(t *testing.T, w *world)

// world is a cluster to read from.
type world struct {
	objects []*unstructured.Unstructured
	// unserved are kinds that the API server does not serve, broken those of
	// which discovery fails; modern is today's Knative.
	unserved, broken []string
	modern           bool
	// forbidden is the kind that the account may not get.
	forbidden string
	// twice: each list begins again once, behind its last object.
	twice bool
}

func newWorld(t *testing.T, edits ...edit) *world {
	t.Helper()
	w := &world{}
	add(complete)(t, w)
	for _, e := range edits {
		e(t, w)
	}
	return w
}

func add(text string) edit {
	return func(t *testing.T, w *world) {
		t.Helper()
		for _, one := range strings.Split(text, "\n---\n") {
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(one), &obj.Object); err != nil {
				t.Fatal(err)
			}
			raw, err := obj.MarshalJSON() // numbers as the API server's client has them
			if err != nil {
				t.Fatal(err)
			}
			if err := obj.UnmarshalJSON(raw); err != nil {
				t.Fatal(err)
			}
			w.objects = append(w.objects, obj)
		}
	}
}

// is finds objects by "Kind name".
func is(what string) func(*unstructured.Unstructured) bool {
	return func(obj *unstructured.Unstructured) bool { return obj.GetKind()+" "+obj.GetName() == what }
}

func drop(all ...string) edit {
	return func(t *testing.T, w *world) {
		t.Helper()
		for _, what := range all {
			before := len(w.objects)
			if w.objects = slices.DeleteFunc(w.objects, is(what)); len(w.objects) == before {
				t.Fatalf("there is no %s", what)
			}
		}
	}
}

// patch merges YAML into an object.
func patch(what, text string) edit {
	return func(t *testing.T, w *world) {
		t.Helper()
		i := slices.IndexFunc(w.objects, is(what))
		if i < 0 {
			t.Fatalf("there is no %s", what)
		}
		before, err := w.objects[i].MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		merge, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		after, err := jsonpatch.MergePatch(before, merge)
		if err != nil {
			t.Fatal(err)
		}
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(after); err != nil {
			t.Fatal(err)
		}
		w.objects[i] = obj
	}
}

func unserved(kinds ...string) edit {
	return func(_ *testing.T, w *world) { w.unserved = append(w.unserved, kinds...) }
}

func modern(_ *testing.T, w *world) { w.modern = true }

func (w *world) Served(_ context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	if slices.Contains(w.broken, gk.Kind) {
		return migration.Resource{}, false, errors.New("discovery failed")
	}
	if slices.Contains(w.unserved, gk.Kind) {
		return migration.Resource{}, false, nil
	}
	version := "v1alpha1"
	switch {
	case gk.Group == "servicecatalog.k8s.io":
		version = "v1beta1"
	case w.modern && strings.HasSuffix(gk.Group, "knative.dev"):
		version = "v1"
	}
	plural := strings.ToLower(gk.Kind) + "s"
	return migration.Resource{GroupVersionResource: gk.WithVersion(version).GroupVersion().WithResource(plural), Kind: gk.Kind}, true, nil
}

func (w *world) Each(_ context.Context, r migration.Resource, namespace string, opts migration.ListOptions, fn func(*unstructured.Unstructured) error) error {
	selector, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return err
	}
	objects := w.objects
	if w.twice {
		objects = slices.Concat(objects, objects)
	}
	for _, obj := range objects {
		if obj.GetKind() != r.Kind || obj.GroupVersionKind().Group != r.Group || namespace != "" && obj.GetNamespace() != namespace {
			continue
		}
		if selector.Matches(labels.Set(obj.GetLabels())) {
			if err := fn(obj); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) List(ctx context.Context, r migration.Resource, namespace string, opts migration.ListOptions) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	once := *w // a Cluster's List hands each object over once
	once.twice = false
	err := once.Each(ctx, r, namespace, opts, func(obj *unstructured.Unstructured) error {
		all = append(all, obj)
		return nil
	})
	return all, err
}

func (w *world) Get(ctx context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	if ref.Resource.Kind == w.forbidden {
		return nil, fmt.Errorf("cannot get %s: %w", ref, apierrors.NewForbidden(ref.Resource.GroupResource(), ref.Name, errors.New("rbac")))
	}
	all, err := w.List(ctx, ref.Resource, ref.Namespace, migration.ListOptions{})
	if i := slices.IndexFunc(all, func(obj *unstructured.Unstructured) bool { return obj.GetName() == ref.Name }); i >= 0 {
		return all[i], err
	}
	return nil, err
}

// view is the world as conditions see it.
type view struct{ *world }

func (v view) kind(gk schema.GroupKind) migration.Kind {
	r, served, _ := v.Served(context.Background(), gk)
	return migration.Kind{GroupKind: gk, Resource: r, Served: served}
}

func (v view) Get(s migration.Subject) *unstructured.Unstructured {
	obj, _ := v.world.Get(context.Background(), v.kind(s.GroupKind).Ref(s.Namespace, s.Name))
	return obj
}

func (v view) List(gk schema.GroupKind, namespace string) []*unstructured.Unstructured {
	all, _ := v.world.List(context.Background(), v.kind(gk).Resource, namespace, migration.ListOptions{})
	return all
}
