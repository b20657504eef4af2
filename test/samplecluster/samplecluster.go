// Package samplecluster is a Kyma 1.10 cluster on this machine, for the demo and the sandbox: a
// real control plane, the stand-ins for the controllers of Kyma and Knative, and the sample of
// Applications.
package samplecluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	product "github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// The ServiceInstance from before Kyma 1.9, and the service that it is of.
const (
	OldInstance    = "orders"
	OldService     = "6b1b5a4e-0001-4d5c-8f0a-000000000001"
	OldApplication = "commerce-eu"
)

// Cluster is the cluster and what runs on it.
type Cluster struct {
	*kubernetes.ControlPlane
	// Admin is the administrator's configuration, for what is not the jobs' work.
	Admin       *rest.Config
	Client      dynamic.Interface
	Controllers *standin.Controllers
	Mesh        *standin.Mesh
	Kubelet     *node.Kubelet
	Sample      standin.Sample
	// stop ends what Start has started, the last one first.
	stop []func()
}

// Options choose how the cluster begins.
type Options struct {
	// UserAgent is how requests of the administrator appear in the audit log.
	UserAgent string
	// Starting is how long the adapter of the Application in the state standin.Starting is not
	// ready.
	Starting standin.Fault
	// NATS adds the pod of NATS Streaming. Nothing runs it: the API server cannot reach its
	// monitoring port.
	NATS bool
}

// NATSNamespace is that of NATS Streaming.
const NATSNamespace = "natss"

// Start starts the cluster, whose sample is ready when it returns. Close ends it, also after an
// error.
func (c *Cluster) Start(ctx context.Context, o Options) error {
	cp, err := kubernetes.Start(ctx)
	if err != nil {
		return err
	}
	c.ControlPlane, c.Admin = cp, cp.Config()
	c.Admin.UserAgent, c.Admin.WarningHandler = o.UserAgent, rest.NoWarnings{}
	if c.Client, err = dynamic.NewForConfig(c.Admin); err != nil {
		return err
	}
	if err := cp.InstallCRDs(ctx, kubernetes.KnativeV1alpha1); err != nil {
		return err
	}
	if err := c.standIns(ctx); err != nil {
		return err
	}
	// Real adapters take a while to start: that is what a run waits for.
	for i, app := range standin.SampleApplications().In(standin.DeletedByHand) {
		c.Controllers.Break(standin.AdapterNotReadyFor(time.Second+time.Duration(i)*400*time.Millisecond), app)
	}
	c.Controllers.Break(o.Starting, standin.SampleApplications().In(standin.Starting)...)
	if c.Sample, err = standin.LoadSample(ctx, c.Admin); err != nil {
		return err
	}
	if err := c.eventBus(ctx); err != nil {
		return err
	}
	if o.NATS {
		if err := c.nats(ctx); err != nil {
			return err
		}
	}
	return c.Controllers.WaitReady(ctx, c.Sample.In(standin.InPlace, standin.FrozenInPlace)...)
}

// Close ends everything that Start has started.
func (c *Cluster) Close() error {
	for _, stop := range slices.Backward(c.stop) {
		stop()
	}
	c.stop = nil
	if c.ControlPlane == nil {
		return nil
	}
	return c.Stop()
}

// standIns starts the stand-ins for the controllers of Kyma and Knative.
func (c *Cluster) standIns(ctx context.Context) error {
	background := context.WithoutCancel(ctx)
	var err error
	if c.Controllers, err = standin.Start(background, c.Admin, standin.Options{}); err != nil {
		return err
	}
	c.stop = append(c.stop, c.Controllers.Stop)
	if c.Mesh, err = standin.StartMesh(background, c.Admin, standin.Options{Activated: true}); err != nil {
		return err
	}
	c.stop = append(c.stop, c.Mesh.Stop)
	activations, err := standin.StartActivations(background, c.Admin, standin.Options{})
	if err != nil {
		return err
	}
	c.stop = append(c.stop, activations.Stop)
	if c.Kubelet, err = node.StartKubelet(background, c.Admin, standin.IntegrationNamespace); err != nil {
		return err
	}
	c.stop = append(c.stop, c.Kubelet.Stop)
	// The subscription-controller runs if a pod of it is ready.
	bus, err := node.StartKubelet(background, c.Admin, standin.SystemNamespace)
	if err != nil {
		return err
	}
	c.stop = append(c.stop, bus.Stop)
	return nil
}

// nats creates the StatefulSet of NATS Streaming, as Kyma 1.10 has it.
func (c *Cluster) nats(ctx context.Context) error {
	kubelet, err := node.StartKubelet(context.WithoutCancel(ctx), c.Admin, NATSNamespace)
	if err != nil {
		return err
	}
	c.stop = append(c.stop, kubelet.Stop)
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": NATSNamespace}}}
	if _, err := c.Client.Resource(standin.Namespaces).Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("cannot create namespace %s: %w", NATSNamespace, err)
	}
	labels := map[string]any{"app": "nats-streaming"}
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": map[string]any{"name": "nats-streaming", "labels": labels},
		"spec": map[string]any{
			"replicas": int64(1), "serviceName": "nats-streaming", "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec": map[string]any{"containers": []any{map[string]any{
					"name": "nats-streaming", "image": "nats-streaming", "ports": []any{map[string]any{"containerPort": int64(product.NATSMonitoringPort)}},
				}}},
			},
		},
	}}
	sets := standin.Deployments.GroupVersion().WithResource("statefulsets")
	if _, err := c.Client.Resource(sets).Namespace(NATSNamespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("cannot create StatefulSet nats-streaming: %w", err)
	}
	return nil
}

// Knative is a kind of the sample's Knative.
func Knative(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group + ".knative.dev", Version: string(kubernetes.KnativeV1alpha1), Resource: resource}
}

// Monitoring is what the monitoring port of NATS Streaming answers: all events that were ever sent
// have been delivered.
func (c *Cluster) Monitoring(ctx context.Context) ([]byte, error) {
	list, err := c.Client.Resource(Knative("messaging", "subscriptions")).Namespace(standin.SystemNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list the Knative Subscriptions of the Event Bus: %w", err)
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
	return json.Marshal(map[string]any{"server_id": "sample", "count": len(channels), "total": len(channels), "channels": channels})
}

// ServeHTTP is that port.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := c.Monitoring(r.Context())
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	_, _ = w.Write(body)
}

// Switch does what application-operator of Kyma 1.11 does: it upgrades the release of each
// Application, with its event-service and its HTTPSource. It returns the number of releases.
func (c *Cluster) Switch(ctx context.Context) (upgraded int, err error) {
	deployments := c.Client.Resource(standin.Deployments).Namespace(standin.IntegrationNamespace)
	for _, app := range c.Sample {
		if app.State == standin.NeverInstalled {
			continue
		}
		if _, err := c.Client.Resource(standin.Applications).Patch(ctx, app.Name, types.MergePatchType,
			[]byte(`{"spec":{"skipInstallation":false},"status":{"installationStatus":{"status":"DEPLOYED"}}}`), metav1.PatchOptions{}); err != nil {
			return upgraded, err
		}
		if err := standin.PutHTTPSources(ctx, c.Admin, app.Name); err != nil {
			return upgraded, err
		}
		service := standin.EventService(app.Name, true)
		raw, err := json.Marshal(map[string]any{"spec": service.Object["spec"]})
		if err != nil {
			return upgraded, err
		}
		_, err = deployments.Patch(ctx, service.GetName(), types.MergePatchType, raw, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			_, err = deployments.Create(ctx, service, metav1.CreateOptions{})
		}
		if err != nil {
			return upgraded, err
		}
		upgraded++
	}
	return upgraded, nil
}

// Namespaces counts those that use an Application.
func (c *Cluster) Namespaces() int {
	seen := map[string]bool{}
	for _, u := range c.uses() {
		seen[u.namespace] = true
	}
	return len(seen)
}

// use is a namespace that uses an Application.
type use struct{ app, namespace string }

// uses are those of the Applications whose events can come into the mesh now.
func (c *Cluster) uses() []use {
	apps := c.Sample.In(standin.InPlace, standin.Starting, standin.DeletedByHand)
	var all []use
	for _, app := range c.Sample {
		if slices.Contains(apps, app.Name) {
			for _, namespace := range app.Namespaces {
				all = append(all, use{app.Name, namespace})
			}
		}
	}
	return all
}

// Subscriptions are the Kyma Subscriptions: one for each use.
func (c *Cluster) Subscriptions() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, u := range c.uses() {
		sub := standin.KymaSubscription(u.namespace, u.app+"-changes", u.app, "object.changed")
		unstructured.RemoveNestedField(sub.Object, "spec", "include_subscription_name_header")
		// The subscription-controller adds it when it sees the Subscription.
		sub.SetFinalizers(nil)
		all = append(all, sub)
	}
	return all
}

// eventBus creates what of Kyma 1.10 the sample of Applications lacks: Kyma
// Subscriptions, what application-broker has made for the namespaces that use an
// Application, and a ServiceInstance for which it has not.
func (c *Cluster) eventBus(ctx context.Context) error {
	var objects []*unstructured.Unstructured
	for i, u := range c.uses() {
		if u.app == OldApplication && u.namespace == "shop" {
			continue // it is what the old ServiceInstance lacks
		}
		objects = append(objects, standin.Link("v1alpha1", u.app, u.namespace, fmt.Sprintf("brokersub-%d", i)), standin.EventActivation(u.namespace, u.app+"-events", u.app))
	}
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": standin.ServiceInstances.GroupVersion().String(), "kind": "ServiceClass", "metadata": map[string]any{"namespace": "shop", "name": OldService},
		"spec": map[string]any{"externalID": OldService, "externalName": "orders", "serviceBrokerName": standin.ApplicationBrokerName},
	}}
	instance := standin.ServiceInstance("shop", OldInstance, "orders")
	spec := instance.Object["spec"].(map[string]any)
	spec["serviceClassRef"], spec["servicePlanRef"] = map[string]any{"name": OldService}, map[string]any{"name": OldService + "-plan"}
	for _, u := range slices.Concat(objects, c.Subscriptions()) {
		gvr := standin.KymaSubscriptions
		switch u.GetKind() {
		case "EventActivation":
			gvr = standin.EventActivations
		case "Subscription":
			if u.GroupVersionKind().Group != gvr.Group {
				gvr = Knative("messaging", "subscriptions")
			}
		}
		if _, err := c.Client.Resource(gvr).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("cannot create %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
		}
	}
	catalog := standin.ServiceInstances.GroupVersion()
	if _, err := c.Client.Resource(catalog.WithResource("serviceclasses")).Namespace("shop").Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return err
	}
	instances := c.Client.Resource(standin.ServiceInstances).Namespace("shop")
	if _, err := instances.Create(ctx, instance, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := instances.Patch(ctx, OldInstance, types.MergePatchType,
		[]byte(`{"status":{"provisionStatus":"Provisioned","deprovisionStatus":"Required","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	services := fmt.Appendf(nil, `{"spec":{"services":[{"id":%q,"name":"orders","displayName":"Orders","description":"Orders","providerDisplayName":"Provider","labels":{},"tags":[],"entries":[{"type":"Events"}]}]}}`, OldService)
	if _, err := c.Client.Resource(standin.Applications).Patch(ctx, OldApplication, types.MergePatchType, services, metav1.PatchOptions{}); err != nil {
		return err
	}
	// Namespaces got their Brokers with ServiceInstances since Kyma 1.9, but for the
	// shop, whose instance is older.
	for _, u := range c.uses() {
		if u.namespace == "shop" {
			continue
		}
		if _, err := c.Client.Resource(standin.Namespaces).Patch(ctx, u.namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"knative-eventing-injection":"enabled"}}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return c.Mesh.Wait(ctx, func(m *standin.Mesh) bool {
		return m.Has(standin.KymaSubscriptions, len(c.Subscriptions())) && standin.SubscriptionsReady(m)
	})
}
