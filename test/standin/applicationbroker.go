package standin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// ApplicationBroker stands in for Kyma's application-broker (docs/migration/domain.md §4): an Open
// Service Broker over HTTP, for a real Service Catalog, that keeps what it knows in memory.
//
//   - It registers the ServiceBroker "application-broker" in each namespace with an
//     ApplicationMapping, and has Service Catalog read its catalog again when mappings or
//     Applications change. When a ServiceInstance is deleted, it removes the label accessLabel from
//     the namespace, and the ServiceBroker if there is neither a mapping nor an instance left.
//   - It provisions and deprovisions asynchronously. What fails, fails permanently; what is made
//     twice at once, is made twice.
//   - It answers version 2.13 of the Open Service Broker API, and 412 to any other.
//   - After a restart it knows the instances of the cluster, but no operation: it answers 410 to
//     their deletion, remembers them nevertheless, and refuses the instance that takes their place
//     (§4.3). Without a restart it asks the newest operation of an instance: the same external ID
//     can be deprovisioned and provisioned any number of times.
//
// Left out: the resync of mappings at its start and after half an hour, which sets the label
// accessLabel again, and credentials other than the URL of the gateway.
type ApplicationBroker struct {
	opts      ApplicationBrokerOptions
	client    dynamic.Interface
	typed     clientset.Interface
	messaging string // the served version of messaging.knative.dev
	server    *http.Server
	listener  net.Listener
	*loop

	applications, mappings, instances *store
	brokers, classes, plans           *store

	state sync.Mutex
	// memories are those of the broker's pods, the oldest first; it alone is asked. Without pods
	// there is one.
	memories []*memory
	down     bool
	faults   map[BrokerFault]map[string]bool
	delay    time.Duration
	calls    []BrokerCall
}

// BrokerVersion is the Kyma that an application-broker is of.
type BrokerVersion string

const (
	// Broker110 makes EventActivations that their ServiceInstance owns, and deletes the Knative
	// Subscription with every deprovisioning.
	Broker110 BrokerVersion = "1.10"
	// Broker111 makes EventActivations without an owner, and a Policy; it deletes EventActivation
	// and Knative Subscription with the last instance of the service and plan.
	Broker111 BrokerVersion = "1.11"
)

// ApplicationBrokerOptions of StartApplicationBroker.
type ApplicationBrokerOptions struct {
	// Version is Broker110 by default.
	Version BrokerVersion
	// APIPackages makes a class of each Application and a plan of each service (1.11 only, off by
	// default).
	APIPackages bool
	// InCluster makes the Deployment application-broker in kyma-integration. The broker then lives
	// in its pods: anyone who deletes the pod restarts it. The stand-in plays the kubelet of these
	// pods.
	InCluster bool
	// MappingTimeout is how long a provisioning waits for its ApplicationMapping; 0: a minute.
	MappingTimeout time.Duration
	// Log gets what went wrong; nil: nobody.
	Log func(format string, args ...any)
}

// BrokerFault is one way in which the broker goes wrong.
type BrokerFault string

const (
	// FailProvision: every provisioning ends as failed.
	FailProvision BrokerFault = "fail provision"
	// HangProvision: a provisioning stays in progress until the fault is healed.
	HangProvision BrokerFault = "hang provision"
	// FailDeprovision: every deprovisioning ends as failed.
	FailDeprovision BrokerFault = "fail deprovision"
	// HangDeprovision: a deprovisioning stays in progress until the fault is healed.
	HangDeprovision BrokerFault = "hang deprovision"
	// FailBind: every binding is refused.
	FailBind BrokerFault = "fail bind"
	// UnknownService: the Application with the service is not in the broker's cache.
	UnknownService BrokerFault = "unknown service"
	// SkipLink: a provisioning succeeds without a Knative Subscription.
	SkipLink BrokerFault = "skip link"
)

// BrokerCall is what Service Catalog asked of the broker, and the answer.
type BrokerCall struct {
	// Operation is "catalog", "provision", "deprovision", "last_operation", "bind" or "unbind".
	Operation string
	Namespace string
	// Instance is the external ID.
	Instance string
	Status   int
	At       time.Time
}

// Names of the broker in the cluster.
const (
	ApplicationBrokerName = "application-broker"
	registeredLabel       = "namespaced-application-broker"
)

// StartApplicationBroker runs the broker until Stop or the end of ctx.
func StartApplicationBroker(ctx context.Context, cfg *rest.Config, opts ApplicationBrokerOptions) (_ *ApplicationBroker, err error) {
	if opts.Version == "" {
		opts.Version = Broker110
	}
	if opts.MappingTimeout == 0 {
		opts.MappingTimeout = time.Minute
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS = ApplicationBrokerName, -1
	// The finalizers are as they are.
	cfg.WarningHandler = rest.NoWarnings{}
	b := &ApplicationBroker{opts: opts, loop: newLoop(ctx, opts.Log, time.Second), faults: map[BrokerFault]map[string]bool{}}
	b.retries = mappingRetries
	defer func() {
		if err != nil {
			b.Stop()
		}
	}()
	if b.client, err = dynamic.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	if b.typed, err = clientset.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	if b.messaging, err = preferredVersion(cfg, "messaging.knative.dev"); err != nil {
		return nil, err
	}
	if b.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("cannot start the broker: %w", err)
	}
	b.server = &http.Server{Handler: b.handler(), ReadHeaderTimeout: 10 * time.Second}
	b.running.Go(func() { _ = b.server.Serve(b.listener) })

	b.applications = newStore(b.client, Applications, "Application")
	b.mappings = newStore(b.client, ApplicationMappings, "ApplicationMapping")
	b.instances = newStore(b.client, ServiceInstances, "ServiceInstance")
	b.brokers = newStore(b.client, ServiceBrokers, "ServiceBroker")
	b.classes = newStore(b.client, ServiceClasses, "ServiceClass")
	b.plans = newStore(b.client, ServicePlans, "ServicePlan")
	for _, kind := range []struct {
		store *store
		see   func(key string)
	}{
		{b.applications, b.applicationChanged},
		{b.mappings, b.queue.Add},
		{b.instances, b.instanceChanged},
		{b.brokers, func(string) {}},
		{b.classes, func(string) {}},
		{b.plans, func(string) {}},
	} {
		if err := b.watch(kind.store, kind.see); err != nil {
			return nil, err
		}
	}
	if opts.InCluster {
		err = b.deploy(b.ctx)
	} else {
		err = b.remember(b.ctx, "")
	}
	if err != nil {
		return nil, err
	}
	b.run(b.mapping)
	return b, nil
}

func preferredVersion(cfg *rest.Config, group string) (string, error) {
	_, preferred, err := dial(cfg)
	if err != nil {
		return "", err
	}
	if preferred[group] == "" {
		return "", fmt.Errorf("cannot stand in for Kyma: %s is not served (install the CRDs first)", group)
	}
	return preferred[group], nil
}

// Stop ends the broker; what is in the cluster stays.
func (b *ApplicationBroker) Stop() {
	if b.server != nil {
		// Handlers end within restartGrace.
		_ = b.server.Shutdown(context.Background())
	}
	b.end()
}

// URL is where the broker is asked; each namespace has a path of its own below it.
func (b *ApplicationBroker) URL() string { return "http://" + b.listener.Addr().String() }

// Restart restarts the broker: its operations are forgotten, its instances are read from the
// cluster. In a cluster it deletes the pod, and returns when another one is ready.
func (b *ApplicationBroker) Restart(ctx context.Context) error {
	if !b.opts.InCluster {
		b.forget("")
		return b.remember(ctx, "")
	}
	return b.restartPods(ctx)
}

// Down lets every request fail, as if there was no pod; Up ends that. The memory stays.
func (b *ApplicationBroker) Down() { b.setDown(true) }

// Up ends Down.
func (b *ApplicationBroker) Up() { b.setDown(false) }

func (b *ApplicationBroker) setDown(down bool) {
	b.state.Lock()
	b.down = down
	b.state.Unlock()
	b.tell(nil)
}

// Break switches a fault on for services, each "namespace/serviceID"; without any, for all.
func (b *ApplicationBroker) Break(fault BrokerFault, services ...string) {
	b.state.Lock()
	if b.faults[fault] == nil {
		b.faults[fault] = map[string]bool{}
	}
	for _, key := range orEvery(services) {
		b.faults[fault][key] = true
	}
	b.state.Unlock()
}

// HealAll switches every fault and delay off.
func (b *ApplicationBroker) HealAll() {
	b.state.Lock()
	clear(b.faults)
	b.delay = 0
	b.state.Unlock()
	b.tell(nil)
}

// Delay lets every operation take as long from now on.
func (b *ApplicationBroker) Delay(d time.Duration) {
	b.state.Lock()
	defer b.state.Unlock()
	b.delay = d
}

func (b *ApplicationBroker) has(fault BrokerFault, namespace, service string) bool {
	b.state.Lock()
	defer b.state.Unlock()
	return b.faults[fault][namespace+"/"+service] || b.faults[fault][everyApplication]
}

// Calls returns what Service Catalog asked so far, but for the polling of operations and catalogs
// when operations are named.
func (b *ApplicationBroker) Calls(operations ...string) []BrokerCall {
	b.state.Lock()
	defer b.state.Unlock()
	var calls []BrokerCall
	for _, call := range b.calls {
		if len(operations) == 0 || slices.Contains(operations, call.Operation) {
			calls = append(calls, call)
		}
	}
	return calls
}

// WaitCatalog returns when Service Catalog knows all that the broker offers in the namespaces, and
// nothing that it does not.
func (b *ApplicationBroker) WaitCatalog(ctx context.Context, namespaces ...string) error {
	missing := ""
	err := b.await(ctx, func() bool {
		for _, ns := range namespaces {
			if missing = b.missing(ns); missing != "" {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("the catalog is not complete, %s is missing: %w", missing, err)
	}
	return nil
}

// missing names what Service Catalog does not know of a namespace yet.
func (b *ApplicationBroker) missing(namespace string) string {
	registered := b.brokers.get(namespace + "/" + ApplicationBrokerName)
	if !isReady(registered) {
		return "a ServiceBroker " + namespace + "/" + ApplicationBrokerName + " that is ready"
	}
	if seen, _, _ := unstructured.NestedInt64(registered.Object, "status", "reconciledGeneration"); seen != registered.GetGeneration() {
		return "the newest catalog of ServiceBroker " + namespace + "/" + ApplicationBrokerName
	}
	offered := map[string]bool{}
	for _, class := range b.catalog(namespace) {
		offered["ServiceClass "+class.ID] = true
		for _, plan := range class.Plans {
			offered["ServicePlan "+plan.ID] = true
		}
	}
	for _, s := range []*store{b.classes, b.plans} {
		for _, obj := range s.informer.GetStore().List() {
			u := obj.(*unstructured.Unstructured)
			if u.GetNamespace() != namespace || text(u, "spec", "serviceBrokerName") != ApplicationBrokerName {
				continue
			}
			key := s.gvk.Kind + " " + text(u, "spec", "externalID")
			removed, _, _ := unstructured.NestedBool(u.Object, "status", "removedFromBrokerCatalog")
			if removed == offered[key] {
				return key
			}
			delete(offered, key)
		}
	}
	for key := range offered {
		return key
	}
	return ""
}

// applicationChanged has the catalog of each namespace that uses the Application read again.
func (b *ApplicationBroker) applicationChanged(key string) {
	_, app := splitKey(key)
	for _, mapping := range b.mappings.informer.GetStore().ListKeys() {
		if _, name := splitKey(mapping); name == app {
			b.queue.Add(mapping)
		}
	}
}

// instanceChanged is for deletions alone; the key it makes then is that of a mapping without a
// name, which does not exist.
func (b *ApplicationBroker) instanceChanged(key string) {
	if _, exists, _ := b.instances.informer.GetStore().GetByKey(key); !exists {
		namespace, _ := splitKey(key)
		b.queue.Add(namespace + "/")
	}
}

// mappingRetries is how often a mapping is tried again before it is given up.
const mappingRetries = 15

// mapping is the controller of ApplicationMappings.
func (b *ApplicationBroker) mapping(ctx context.Context, key string) error {
	namespace, name := splitKey(key)
	ns, err := b.client.Resource(Namespaces).Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && ns.GetDeletionTimestamp() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	if b.mappings.get(key) == nil {
		if err := b.labelNamespace(ctx, ns, ""); err != nil {
			return err
		}
		return b.unregister(ctx, namespace)
	}
	app := b.applications.get(name)
	if app == nil || text(app, "spec", "accessLabel") == "" {
		return fmt.Errorf("cannot get the accessLabel of Application %s", name)
	}
	if err := b.labelNamespace(ctx, ns, text(app, "spec", "accessLabel")); err != nil {
		return err
	}
	return b.register(ctx, namespace)
}

// labelNamespace sets the label accessLabel, or removes it.
func (b *ApplicationBroker) labelNamespace(ctx context.Context, ns *unstructured.Unstructured, label string) error {
	value, is := ns.GetLabels()["accessLabel"]
	if value == label && is == (label != "") {
		return nil
	}
	patch := []byte(fmt.Sprintf(`{"metadata":{"labels":{"accessLabel":%q}}}`, label))
	if label == "" {
		patch = []byte(`{"metadata":{"labels":{"accessLabel":null}}}`)
	}
	_, err := b.client.Resource(Namespaces).Patch(ctx, ns.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// register makes the ServiceBroker of a namespace, or has Service Catalog read its catalog again.
func (b *ApplicationBroker) register(ctx context.Context, namespace string) error {
	resource := b.client.Resource(ServiceBrokers).Namespace(namespace)
	url := b.URL() + "/" + namespace
	registered, err := resource.Get(ctx, ApplicationBrokerName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		registered = object(ServiceBrokers.GroupVersion().WithKind("ServiceBroker"), namespace, ApplicationBrokerName, map[string]any{
			"spec": map[string]any{"url": url},
		})
		registered.SetLabels(map[string]string{registeredLabel: "true"})
		_, err = resource.Create(ctx, registered, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	// Its URL is that of a Service, which stays; here it is that of the process.
	spec := registered.Object["spec"].(map[string]any)
	requests, _, _ := unstructured.NestedInt64(registered.Object, "spec", "relistRequests")
	spec["url"], spec["relistRequests"] = url, requests+1
	_, err = resource.Update(ctx, registered, metav1.UpdateOptions{})
	return err
}

// unregister deletes the ServiceBroker if the namespace has neither a mapping nor an instance of it
// any more.
func (b *ApplicationBroker) unregister(ctx context.Context, namespace string) error {
	for _, key := range b.mappings.informer.GetStore().ListKeys() {
		if in, _ := splitKey(key); in == namespace {
			if b.brokers.get(namespace+"/"+ApplicationBrokerName) == nil {
				return nil
			}
			return b.register(ctx, namespace)
		}
	}
	instances, err := b.client.Resource(ServiceInstances).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range instances.Items {
		if class := text(&instances.Items[i], "spec", "serviceClassRef", "name"); class != "" && b.ownClass(namespace, class) {
			return nil
		}
	}
	err = b.client.Resource(ServiceBrokers).Namespace(namespace).Delete(ctx, ApplicationBrokerName, metav1.DeleteOptions{})
	return kubernetes.IgnoreNotFound(err)
}

func (b *ApplicationBroker) ownClass(namespace, name string) bool {
	class := b.classes.get(namespace + "/" + name)
	return class != nil && text(class, "spec", "serviceBrokerName") == ApplicationBrokerName
}
