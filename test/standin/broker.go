package standin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
)

// Mesh stands in for Knative Eventing's controllers of Brokers, Triggers and
// Subscriptions, and for the Event Bus's subscription-controller, over the real
// API server:
//
//   - Where Brokers are at v1alpha1, a namespace with the label
//     knative-eventing-injection gets the Broker "default", two ServiceAccounts
//     and four RoleBindings, and keeps them when the label goes.
//   - A Broker gets an address and Ready; a Trigger is Ready if its Broker is. It
//     looks again when its Broker comes. The Knative Subscription of a Trigger, and
//     the Deployments of a Broker, are not made.
//   - A Knative Subscription or Channel is Ready. Where Brokers are at v1alpha1, a
//     Channel lists its subscribers in spec.subscribable, a moment after they came or
//     went, and has no observedGeneration; with Options.Knative010, nothing has.
//   - While the Deployment of the subscription-controller has replicas, a Kyma
//     Subscription gets its finalizer, and, if an EventActivation of its source is in
//     its namespace, a Channel in kyma-system that equal ones share, and a Knative
//     Subscription. Of equal ones in a namespace, only the first becomes is-ready.
//     What was made goes when it is deleted, and the finalizer last, after a write that
//     conflicts with one of its own. The Channel goes with the only subscriber that it
//     lists: two that are deleted at once leave it.
//
// Application-broker is not among them: see Link.
type Mesh struct {
	client dynamic.Interface
	log    func(format string, args ...any)
	queue  workqueue.TypedRateLimitingInterface[meshKey]

	brokers, triggers, links, channels, subscriptions, namespaces, deployments, activations *store
	// old is the Knative Eventing of Kyma 1.10 and 1.11, with all kinds at v1alpha1;
	// knative010 that of 1.10. realKnative does all of Knative's part.
	old, knative010, realKnative bool
	// activated: no EventActivation is asked for.
	activated  bool
	controller busController

	changes
	faults map[MeshFault]map[string]bool
	// subscribed are the Channels, as "namespace/name", of the Knative Subscriptions
	// that were seen.
	subscribed map[string]string

	stop    context.CancelFunc
	running sync.WaitGroup
}

// MeshFault is one way in which these controllers go wrong.
type MeshFault string

const (
	// BrokerNeverReady: the Deployment of its filter does not start. Its name is
	// "namespace/default".
	BrokerNeverReady MeshFault = "broker never ready"
	// TriggerNeverReady: its subscriber cannot be resolved.
	TriggerNeverReady MeshFault = "trigger never ready"
	// TriggerStuck: after an upgrade, its Knative Subscription hangs in its
	// deletion for ever.
	TriggerStuck MeshFault = "trigger stuck"
	// NeverFinalized: the subscription-controller runs, and does not do its part
	// when the Kyma Subscription is deleted.
	NeverFinalized MeshFault = "never finalized"
)

type meshKey struct{ kind, key string }

// StartMesh runs the controllers until Stop or the end of ctx.
func StartMesh(ctx context.Context, cfg *rest.Config, opts Options) (*Mesh, error) {
	client, version, err := dial(cfg)
	if err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	m := &Mesh{
		client: client, log: opts.Log, realKnative: opts.RealKnative, old: version["eventing.knative.dev"] == "v1alpha1",
		knative010: opts.Knative010, activated: opts.Activated, subscribed: map[string]string{},
		controller: busController{pods: opts.ControllerPods},
		faults:     map[MeshFault]map[string]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[meshKey](5*time.Millisecond, time.Second)),
	}
	var stores []*store
	for _, kind := range []struct {
		store                 **store
		group, resource, kind string
	}{
		{&m.brokers, "eventing.knative.dev", "brokers", "Broker"},
		{&m.triggers, "eventing.knative.dev", "triggers", "Trigger"},
		{&m.links, "messaging.knative.dev", "subscriptions", "Subscription"},
		{&m.channels, "messaging.knative.dev", "channels", "Channel"},
		{&m.subscriptions, KymaSubscriptions.Group, KymaSubscriptions.Resource, "KymaSubscription"},
		{&m.namespaces, "", "namespaces", "Namespace"},
		{&m.deployments, "apps", "deployments", "Deployment"},
		{&m.activations, EventActivations.Group, EventActivations.Resource, "EventActivation"},
	} {
		if kind.kind == "EventActivation" && opts.Activated {
			continue
		}
		s := newStore(client, schema.GroupVersionResource{Group: kind.group, Version: version[kind.group], Resource: kind.resource}, strings.TrimPrefix(kind.kind, "Kyma"))
		if err := s.watch(func(key string) { m.observed(meshKey{kind.kind, key}) }); err != nil {
			return nil, err
		}
		*kind.store = s
		stores = append(stores, s)
	}
	ctx, m.stop = context.WithCancel(ctx)
	if err := observe(ctx, &m.running, stores...); err != nil {
		m.Stop()
		return nil, err
	}
	for range 8 {
		m.running.Go(func() { m.work(ctx) })
	}
	context.AfterFunc(ctx, m.queue.ShutDown)
	return m, nil
}

// Stop ends the controllers and returns when they have ended.
func (m *Mesh) Stop() {
	m.stop()
	m.queue.ShutDown()
	m.running.Wait()
}

// Break switches a fault on for objects, each "namespace/name".
func (m *Mesh) Break(fault MeshFault, keys ...string) {
	m.mu.Lock()
	if m.faults[fault] == nil {
		m.faults[fault] = map[string]bool{}
	}
	for _, key := range keys {
		m.faults[fault][key] = true
	}
	m.mu.Unlock()
	m.lookAgain()
}

// HealAll switches every fault off.
func (m *Mesh) HealAll() {
	m.mu.Lock()
	clear(m.faults)
	m.mu.Unlock()
	m.BreakController(ControllerFaults{})
}

func (m *Mesh) has(fault MeshFault, key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults[fault][key]
}

func (m *Mesh) lookAgain() {
	for kind, s := range map[string]*store{"Broker": m.brokers, "Trigger": m.triggers, "KymaSubscription": m.subscriptions} {
		for _, key := range s.informer.GetStore().ListKeys() {
			m.queue.Add(meshKey{kind, key})
		}
	}
}

func (m *Mesh) observed(key meshKey) {
	m.queue.Add(key)
	m.tell(nil)
}

// Wait asks again whenever the controllers see a change, until it holds.
func (m *Mesh) Wait(ctx context.Context, holds func(*Mesh) bool) error {
	return m.await(ctx, func() bool { return holds(m) })
}

// TriggersReady is for Wait: every Trigger is Ready.
func TriggersReady(m *Mesh) bool { return m.triggers.allReady() }

// LinksReady is for Wait: every Knative Subscription is Ready.
func LinksReady(m *Mesh) bool { return m.links.allReady() }

// SubscriptionsReady is for Wait: the subscription-controller is done with every
// Kyma Subscription.
func SubscriptionsReady(m *Mesh) bool {
	for _, key := range m.subscriptions.informer.GetStore().ListKeys() {
		sub := m.subscriptions.get(key)
		if sub == nil || sub.GetDeletionTimestamp() != nil {
			return false
		}
		// Without an endpoint there is nothing to bring the events to.
		endpoint, _, _ := unstructured.NestedString(sub.Object, "spec", "endpoint")
		if endpoint != "" && !isReady(m.links.get(SystemNamespace+"/"+busName(sub))) {
			return false
		}
	}
	return true
}

func (m *Mesh) work(ctx context.Context) {
	for {
		key, shutdown := m.queue.Get()
		if shutdown {
			return
		}
		err := m.reconcile(ctx, key)
		switch {
		case err == nil:
			m.queue.Forget(key)
		case ctx.Err() == nil:
			m.log("%s: %v", key, err)
			m.queue.AddRateLimited(key)
		}
		m.queue.Done(key)
	}
}

func (m *Mesh) reconcile(ctx context.Context, key meshKey) error {
	if m.realKnative && slices.Contains([]string{"Namespace", "Broker", "Trigger", "Subscription", "Channel"}, key.kind) {
		return nil
	}
	switch key.kind {
	case "Namespace":
		return m.inject(ctx, strings.TrimPrefix(key.key, "/"))
	case "Broker":
		return m.broker(ctx, key.key)
	case "Trigger":
		return m.trigger(ctx, key.key)
	case "Subscription":
		m.subscribes(key.key)
		return m.ready(ctx, m.links, key.key, "AddedToChannel", "ChannelReady", "Resolved")
	case "Channel":
		if err := m.subscribers(ctx, key.key); err != nil {
			return err
		}
		// Those of HTTPSources are the other controllers'.
		if namespace, _ := splitKey(key.key); namespace == SystemNamespace {
			return m.ready(ctx, m.channels, key.key, "Addressable", "BackingChannelReady")
		}
	case "EventActivation":
		namespace, _ := splitKey(key.key)
		for _, sub := range m.subscriptions.informer.GetStore().ListKeys() {
			if in, _ := splitKey(sub); in == namespace {
				m.queue.Add(meshKey{"KymaSubscription", sub})
			}
		}
	case "KymaSubscription":
		return m.subscription(ctx, key.key)
	case "Deployment":
		if key.key == SystemNamespace+"/"+SubscriptionController {
			if m.controller.pods {
				if err := m.controllerPods(ctx); err != nil {
					return err
				}
			}
			m.lookAgain()
		}
	}
	return nil
}

// inject is Knative's controller of namespaces, as up to 0.13.
func (m *Mesh) inject(ctx context.Context, namespace string) error {
	ns := m.namespaces.get(namespace)
	if !m.old || ns == nil || ns.GetDeletionTimestamp() != nil || ns.GetLabels()["knative-eventing-injection"] != "enabled" {
		return nil
	}
	var errs []error
	create := func(gvr schema.GroupVersionResource, u *unstructured.Unstructured) {
		u.SetLabels(injected())
		_, err := m.client.Resource(gvr).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("cannot create %s %s: %w", u.GetKind(), keyOf(u), err))
		}
	}
	bindings := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	for _, account := range []string{"eventing-broker-ingress", "eventing-broker-filter"} {
		create(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"},
			object(schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, namespace, account, map[string]any{}))
		for _, binding := range []struct{ namespace, name, role string }{
			{namespace, account, account},
			{EventingNamespace, "eventing-config-reader-" + namespace + "-" + account, "eventing-config-reader"},
		} {
			create(bindings, object(bindings.GroupVersion().WithKind("RoleBinding"), binding.namespace, binding.name, map[string]any{
				"roleRef":  map[string]any{"apiGroup": bindings.Group, "kind": "ClusterRole", "name": binding.role},
				"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": account, "namespace": namespace}},
			}))
		}
	}
	if m.brokers.get(namespace+"/default") == nil {
		broker := object(m.brokers.gvk, namespace, "default", map[string]any{"spec": map[string]any{
			"channelTemplateSpec": map[string]any{"apiVersion": "messaging.knative.dev/v1alpha1", "kind": "NatssChannel"},
		}})
		broker.SetLabels(injected())
		if err := m.brokers.create(ctx, broker); err != nil && !apierrors.IsAlreadyExists(errors.Unwrap(err)) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// injected are the labels of all that Knative's controller makes for a namespace: OwnedLabels of
// eventing v0.12.0, in pkg/reconciler/namespace/resources.
func injected() map[string]string {
	return map[string]string{"eventing.knative.dev/namespaceInjected": "true"}
}

func (m *Mesh) broker(ctx context.Context, key string) error {
	defer m.enqueueTriggers(key)
	broker := m.brokers.get(key)
	namespace, name := splitKey(key)
	if broker == nil || broker.GetDeletionTimestamp() != nil {
		// One that is injected comes back while the label stays.
		m.queue.Add(meshKey{"Namespace", "/" + namespace})
		return nil
	}
	conds := conditionsOf(broker)
	conds.initialize("Addressable", "FilterReady", "IngressReady", "Ready", "TriggerChannelReady")
	host := name + "-broker." + namespace + ".svc.cluster.local"
	status := m.status(broker)
	status["address"] = map[string]any{"url": "http://" + host, "hostname": host}
	for _, kind := range []string{"Addressable", "IngressReady", "TriggerChannelReady", "FilterReady"} {
		conds.mark(kind, "True", "", "")
	}
	if m.has(BrokerNeverReady, key) {
		conds.mark("FilterReady", "False", "DeploymentUnavailable", `The Deployment "default-broker-filter" is unavailable.`)
	}
	conds.summarize("Addressable", "FilterReady", "IngressReady", "TriggerChannelReady")
	status["conditions"] = conds.list()
	return m.brokers.setStatus(ctx, broker, status)
}

func (m *Mesh) enqueueTriggers(broker string) {
	namespace, _ := splitKey(broker)
	for _, key := range m.triggers.informer.GetStore().ListKeys() {
		if in, _ := splitKey(key); in == namespace {
			m.queue.Add(meshKey{"Trigger", key})
		}
	}
}

func (m *Mesh) trigger(ctx context.Context, key string) error {
	trigger := m.triggers.get(key)
	if trigger == nil || trigger.GetDeletionTimestamp() != nil {
		return nil
	}
	namespace, _ := splitKey(key)
	name, _, _ := unstructured.NestedString(trigger.Object, "spec", "broker")
	uri, _, _ := unstructured.NestedString(trigger.Object, "spec", "subscriber", "uri")
	if ref, ok, _ := unstructured.NestedStringMap(trigger.Object, "spec", "subscriber", "ref"); ok {
		uri = "http://" + ref["name"] + "." + namespace + ".svc.cluster.local"
	}
	conds := conditionsOf(trigger)
	conds.initialize("BrokerReady", "DependencyReady", "Ready", "Subscribed", "SubscriberResolved")
	conds.mark("DependencyReady", "True", "", "")
	status := m.status(trigger)
	broker := m.brokers.get(namespace + "/" + name)
	switch {
	case broker == nil:
		conds.mark("BrokerReady", "False", "DoesNotExist", "Broker does not exist")
	case !isReady(broker):
		conds.mark("BrokerReady", "False", "BrokerNotReady", "Broker is not ready")
	default:
		conds.mark("BrokerReady", "True", "", "")
		switch {
		case m.has(TriggerNeverReady, key):
			conds.mark("SubscriberResolved", "False", "Unable to get the Subscriber's URI", `services "gone" not found`)
		case m.has(TriggerStuck, key):
			conds.mark("SubscriberResolved", "True", "", "")
			conds.mark("Subscribed", "False", "NotSubscribed", "object is being deleted: subscriptions.messaging.knative.dev \"default-x\" already exists")
		default:
			status["subscriberURI"] = uri
			conds.mark("SubscriberResolved", "True", "", "")
			conds.mark("Subscribed", "True", "", "")
		}
	}
	conds.summarize("BrokerReady", "DependencyReady", "SubscriberResolved", "Subscribed")
	status["conditions"] = conds.list()
	return m.triggers.setStatus(ctx, trigger, status)
}

// ready makes an object ready that nothing is wrong with.
func (m *Mesh) ready(ctx context.Context, s *store, key string, dependents ...string) error {
	obj := s.get(key)
	if obj == nil || obj.GetDeletionTimestamp() != nil {
		return nil
	}
	conds := conditionsOf(obj)
	for _, kind := range dependents {
		conds.mark(kind, "True", "", "")
	}
	conds.summarize(dependents...)
	status := m.status(obj)
	status["conditions"] = conds.list()
	if slices.Contains(dependents, "Addressable") {
		host := obj.GetName() + "-kn-channel." + obj.GetNamespace() + ".svc.cluster.local"
		status["address"] = map[string]any{"url": "http://" + host, "hostname": host}
	}
	return s.setStatus(ctx, obj, status)
}

// status is what the status of an object of Knative's begins with.
func (m *Mesh) status(obj *unstructured.Unstructured) map[string]any {
	if m.old && (m.knative010 || obj.GetKind() == "Channel") {
		return map[string]any{}
	}
	return map[string]any{"observedGeneration": obj.GetGeneration()}
}

// subscriptionLag is how long Knative takes to remove a subscriber from its Channel.
const subscriptionLag = 50 * time.Millisecond

// subscribes has the Channel of a Knative Subscription list it, or list it no more.
func (m *Mesh) subscribes(key string) {
	link := m.links.get(key)
	namespace, _ := splitKey(key)
	m.mu.Lock()
	former := m.subscribed[key]
	now := ""
	if link != nil && link.GetDeletionTimestamp() == nil {
		name, _, _ := unstructured.NestedString(link.Object, "spec", "channel", "name")
		now = namespace + "/" + name
		m.subscribed[key] = now
	} else {
		delete(m.subscribed, key)
	}
	m.mu.Unlock()
	if now != "" {
		m.queue.Add(meshKey{"Channel", now})
	}
	if former != "" && former != now {
		m.queue.AddAfter(meshKey{"Channel", former}, subscriptionLag)
	}
}

// subscribers lists in a Channel who subscribes to it, as Knative does up to 0.13. Its
// later versions do so in what is behind a Channel.
func (m *Mesh) subscribers(ctx context.Context, key string) error {
	channel := m.channels.get(key)
	if !m.old || channel == nil || channel.GetDeletionTimestamp() != nil {
		return nil
	}
	listed, now := m.subscribersOf(channel)
	if equality.Semantic.DeepEqual(listed, now) {
		return nil
	}
	channel = channel.DeepCopy()
	// It stays, empty, when the last one goes.
	subscribable := map[string]any{}
	if len(now) > 0 {
		subscribable["subscribers"] = now
	}
	if err := unstructured.SetNestedField(channel.Object, subscribable, "spec", "subscribable"); err != nil {
		return err
	}
	return m.channels.update(ctx, channel)
}

// subscribersOf are the subscribers that a Channel lists, and those that it has now.
func (m *Mesh) subscribersOf(channel *unstructured.Unstructured) (listed, now []any) {
	listed, _, _ = unstructured.NestedSlice(channel.Object, "spec", "subscribable", "subscribers")
	for _, obj := range m.links.informer.GetStore().List() {
		u := obj.(*unstructured.Unstructured)
		if u.GetNamespace() == channel.GetNamespace() && u.GetDeletionTimestamp() == nil && text(u, "spec", "channel", "name") == channel.GetName() {
			now = append(now, map[string]any{"uid": string(u.GetUID()), "generation": u.GetGeneration(), "subscriberURI": text(u, "spec", "subscriber", "uri")})
		}
	}
	slices.SortFunc(now, func(a, b any) int {
		return strings.Compare(a.(map[string]any)["uid"].(string), b.(map[string]any)["uid"].(string))
	})
	return listed, now
}
