package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	product "github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// The ServiceInstance from before Kyma 1.9, and the service that it is of.
const (
	oldInstance = "orders"
	oldService  = "6b1b5a4e-0001-4d5c-8f0a-000000000001"
	oldApp      = "commerce-eu"
)

// standIns start what stands in for the controllers of Kyma and Knative.
func (d *demo) standIns(ctx context.Context) error {
	background := context.WithoutCancel(ctx)
	var err error
	if d.controllers, err = standin.Start(background, d.cfg, standin.Options{}); err != nil {
		return err
	}
	d.stop = append(d.stop, d.controllers.Stop)
	if d.mesh, err = standin.StartMesh(background, d.cfg, standin.Options{Activated: true}); err != nil {
		return err
	}
	d.stop = append(d.stop, d.mesh.Stop)
	activations, err := standin.StartActivations(background, d.cfg, standin.Options{})
	if err != nil {
		return err
	}
	d.stop = append(d.stop, activations.Stop)
	if d.kubelet, err = standin.StartKubelet(background, d.cfg, standin.IntegrationNamespace); err != nil {
		return err
	}
	d.stop = append(d.stop, d.kubelet.Stop)
	// The subscription-controller runs if a pod of it is ready.
	bus, err := standin.StartKubelet(background, d.cfg, standin.SystemNamespace)
	if err != nil {
		return err
	}
	d.stop = append(d.stop, bus.Stop)
	return d.monitoring()
}

// monitoring stands in for the monitoring port of NATS Streaming: all that was ever
// sent has been delivered.
func (d *demo) monitoring() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.nats = "http://" + listener.Addr().String()
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list, err := d.client.Resource(knative("messaging", "subscriptions")).Namespace(standin.SystemNamespace).List(r.Context(), metav1.ListOptions{})
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		// Equal Kyma Subscriptions share a Channel.
		durables := map[string][]any{}
		for i := range list.Items {
			link := &list.Items[i]
			channel, _, _ := unstructured.NestedString(link.Object, "spec", "channel", "name")
			durables[channel] = append(durables[channel], map[string]any{"durable_name": product.NATSDurable(link.GetUID()), "is_durable": true, "last_sent": 7})
		}
		channels := []any{}
		for channel, subscriptions := range durables {
			channels = append(channels, map[string]any{
				"name": product.NATSChannel(standin.SystemNamespace, channel), "msgs": 7, "first_seq": 1, "last_seq": 7, "subscriptions": subscriptions,
			})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"server_id": "demo", "count": len(channels), "total": len(channels), "channels": channels})
	})}
	go func() { _ = server.Serve(listener) }()
	d.stop = append(d.stop, func() { _ = server.Close() })
	return nil
}

// use is a namespace that uses an Application.
type use struct{ app, namespace string }

// uses are those of the Applications whose events can come into the mesh now.
func (d *demo) uses() []use {
	apps := d.sample.In(standin.InPlace, standin.Starting, standin.DeletedByHand)
	var all []use
	for _, app := range d.sample {
		if slices.Contains(apps, app.Name) {
			for _, namespace := range app.Namespaces {
				all = append(all, use{app.Name, namespace})
			}
		}
	}
	return all
}

// subscriptions are the Kyma Subscriptions: one for each use.
func (d *demo) subscriptions() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, u := range d.uses() {
		sub := standin.KymaSubscription(u.namespace, u.app+"-changes", u.app, "object.changed")
		unstructured.RemoveNestedField(sub.Object, "spec", "include_subscription_name_header")
		// The subscription-controller takes it into its hands when it sees it.
		sub.SetFinalizers(nil)
		all = append(all, sub)
	}
	return all
}

// eventBus puts in place what of Kyma 1.10 the sample of Applications lacks: Kyma
// Subscriptions, what application-broker has made for the namespaces that use an
// Application, and a ServiceInstance for which it has not.
func (d *demo) eventBus(ctx context.Context) error {
	var objects []*unstructured.Unstructured
	for i, u := range d.uses() {
		if u.app == oldApp && u.namespace == "shop" {
			continue // it is what the old ServiceInstance lacks
		}
		objects = append(objects, standin.Link("v1alpha1", u.app, u.namespace, fmt.Sprintf("brokersub-%d", i)), standin.EventActivation(u.namespace, u.app+"-events", u.app))
	}
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": standin.ServiceInstances.GroupVersion().String(), "kind": "ServiceClass", "metadata": map[string]any{"namespace": "shop", "name": oldService},
		"spec": map[string]any{"externalID": oldService, "externalName": "orders", "serviceBrokerName": standin.ApplicationBrokerName},
	}}
	instance := standin.ServiceInstance("shop", oldInstance, "orders")
	spec := instance.Object["spec"].(map[string]any)
	spec["serviceClassRef"], spec["servicePlanRef"] = map[string]any{"name": oldService}, map[string]any{"name": oldService + "-plan"}
	for _, u := range slices.Concat(objects, d.subscriptions()) {
		gvr := standin.KymaSubscriptions
		switch u.GetKind() {
		case "EventActivation":
			gvr = standin.EventActivations
		case "Subscription":
			if u.GroupVersionKind().Group != gvr.Group {
				gvr = knative("messaging", "subscriptions")
			}
		}
		if _, err := d.client.Resource(gvr).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("cannot create %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
		}
	}
	catalog := standin.ServiceInstances.GroupVersion()
	if _, err := d.client.Resource(catalog.WithResource("serviceclasses")).Namespace("shop").Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return err
	}
	instances := d.client.Resource(standin.ServiceInstances).Namespace("shop")
	if _, err := instances.Create(ctx, instance, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := instances.Patch(ctx, oldInstance, types.MergePatchType,
		[]byte(`{"status":{"provisionStatus":"Provisioned","deprovisionStatus":"Required","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	services := fmt.Appendf(nil, `{"spec":{"services":[{"id":%q,"name":"orders","displayName":"Orders","description":"Orders","providerDisplayName":"Provider","labels":{},"tags":[],"entries":[{"type":"Events"}]}]}}`, oldService)
	if _, err := d.client.Resource(standin.Applications).Patch(ctx, oldApp, types.MergePatchType, services, metav1.PatchOptions{}); err != nil {
		return err
	}
	// Namespaces got their Brokers with ServiceInstances since Kyma 1.9, but for the
	// shop, whose instance is older.
	for _, u := range d.uses() {
		if u.namespace == "shop" {
			continue
		}
		if _, err := d.client.Resource(standin.Namespaces).Patch(ctx, u.namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"knative-eventing-injection":"enabled"}}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return d.mesh.Wait(ctx, func(m *standin.Mesh) bool {
		return m.Has(standin.KymaSubscriptions, len(d.subscriptions())) && standin.SubscriptionsReady(m)
	})
}
