package standin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/test/standin/natsstreaming"
)

// EventPath carries events as Kyma 1.10 and 1.11 do, over HTTP and a real NATS
// Streaming server, and by what the objects in the API server say:
//
//   - The endpoint of an Application is a pod of its event-service that is ready
//     and not about to end: one of 1.10, which posts to event-publish-service, or
//     one with --eventMeshURL, which is where Options.Address says.
//   - event-publish-service, while a pod of it is ready, finds the Channel by its
//     labels and stores the event in NATS Streaming. Without a Channel it answers
//     200 and the event is gone, as the real one does.
//   - The adapter of an HTTPSource takes CloudEvents 1.0 and stores them in the
//     Application's Channel, if that exists.
//   - Knative's dispatcher has a durable subscription for each Knative Subscription,
//     named by its UID, and delivers until it gets a 2xx. When the Knative
//     Subscription goes, so does the durable one, with all that is undelivered.
//   - A Broker hands an event to the subscribers of all ready Triggers of its
//     namespace that match; if one fails, all get it again.
//
// The Event Bus's Channels and Knative Subscriptions are Mesh's to make.
type EventPath struct {
	options EventPathOptions
	log     func(format string, args ...any)

	channels, links, triggers, pods, sources *store

	nats *natsstreaming.Server
	// MonitoringURL is that of NATS Streaming.
	MonitoringURL string

	services   *httptest.Server // fronts, old event-services, publisher, adapters
	subscriber *httptest.Server
	client     *http.Client // reaches the subscriber, whatever host a URL names
	transport  *http.Transport

	changes
	subscriptions map[string]*durable // by UID of the Knative Subscription
	// turn is for callers that ask for one of several pods.
	turn atomic.Uint64

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

// EventPathOptions of StartEventPath.
type EventPathOptions struct {
	// Subscriber gets every delivery; Host is that of the endpoint.
	Subscriber http.Handler
	// Address is where the event-service on the mesh in a pod serves, "" if nowhere.
	Address func(pod types.UID) string
	// Host is the address at which its services listen; "": loopback.
	Host string
	// RealKnative leaves what comes after the adapters to the real Knative Eventing:
	// only the Event Bus's Channels are over NATS Streaming.
	RealKnative bool
	// Log gets what went wrong and is tried again; nil: nobody.
	Log func(format string, args ...any)
}

// redelivery is after how long an event that was not acknowledged comes again; a
// minute in a real cluster.
const redelivery = time.Second

// durable is the subscription in NATS Streaming of one Knative Subscription.
type durable struct {
	channel    string
	subscriber string
	sub        *natsstreaming.Subscription
}

// StartEventPath runs it until Stop or the end of ctx.
func StartEventPath(ctx context.Context, cfg *rest.Config, o EventPathOptions) (_ *EventPath, err error) {
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	p := &EventPath{
		options: o, log: o.Log, subscriptions: map[string]*durable{},
	}
	p.ctx, p.stop = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	if p.nats, err = natsstreaming.Start(ctx, o.Host); err != nil {
		return nil, err
	}
	p.MonitoringURL = p.nats.MonitoringURL
	p.subscriber = httptest.NewServer(o.Subscriber)
	address := p.subscriber.Listener.Addr().String()
	p.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
		MaxIdleConnsPerHost: 16,
	}}
	p.transport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second}
	l, err := net.Listen("tcp", net.JoinHostPort(o.Host, "0"))
	if err != nil {
		return nil, err
	}
	p.services = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	_ = p.services.Listener.Close()
	p.services.Listener = l
	p.services.Start()
	if err := p.watch(cfg); err != nil {
		return nil, err
	}
	return p, nil
}

// watch follows the objects that say where events go.
func (p *EventPath) watch(cfg *rest.Config) error {
	client, version, err := dial(cfg)
	if err != nil {
		return err
	}
	nothing := func(string) {}
	var stores []*store
	for _, kind := range []struct {
		store                 **store
		group, resource, kind string
		changed               func(key string)
	}{
		{&p.channels, "messaging.knative.dev", "channels", "Channel", nothing},
		{&p.links, "messaging.knative.dev", "subscriptions", "Subscription", p.link},
		{&p.triggers, "eventing.knative.dev", "triggers", "Trigger", nothing},
		{&p.sources, HTTPSources.Group, HTTPSources.Resource, "HTTPSource", nothing},
		{&p.pods, "", "pods", "Pod", nothing},
	} {
		s := newStore(client, schema.GroupVersionResource{Group: kind.group, Version: version[kind.group], Resource: kind.resource}, kind.kind)
		*kind.store = s
		// Its callers may look at other kinds, which are all there by then.
		if err := s.watch(func(key string) {
			kind.changed(key)
			p.tell(nil)
		}); err != nil {
			return err
		}
		stores = append(stores, s)
	}
	return observe(p.ctx, &p.running, stores...)
}

// Stop ends everything, and returns when it has ended.
func (p *EventPath) Stop() {
	p.stop()
	p.running.Wait()
	if p.services != nil {
		p.transport.CloseIdleConnections()
		p.services.Close()
	}
	if p.nats != nil {
		p.nats.Stop()
	}
	if p.subscriber != nil {
		p.subscriber.Close()
	}
}

// Wait returns when it holds; it is asked again whenever something changes.
func (p *EventPath) Wait(ctx context.Context, holds func(*EventPath) bool) error {
	return p.await(ctx, func() bool { return holds(p) })
}

// Subscribed is for Wait: the dispatcher delivers for n Knative Subscriptions.
func (p *EventPath) Subscribed(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.subscriptions) == n
}

// message is an event in NATS Streaming.
type message struct {
	Header http.Header
	Body   []byte
}

func (p *EventPath) publish(channel string, m message) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	// It returns when the server has stored the event.
	return p.nats.Publish(channel, raw)
}

// link is the dispatcher's part: a durable subscription for each Knative
// Subscription.
func (p *EventPath) link(key string) {
	u := p.links.get(key)
	wanted := map[string]bool{}
	for _, obj := range p.links.informer.GetStore().List() {
		wanted[string(obj.(*unstructured.Unstructured).GetUID())] = obj.(*unstructured.Unstructured).GetDeletionTimestamp() == nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, d := range p.subscriptions {
		if !wanted[uid] {
			if err := d.sub.Unsubscribe(); err != nil && p.ctx.Err() == nil {
				p.log("cannot unsubscribe %s: %v", uid, err)
			}
			delete(p.subscriptions, uid)
		}
	}
	if u == nil || u.GetDeletionTimestamp() != nil || p.subscriptions[string(u.GetUID())] != nil || p.options.RealKnative && u.GetNamespace() != SystemNamespace {
		return
	}
	channel, _, _ := unstructured.NestedString(u.Object, "spec", "channel", "name")
	uri, _, _ := unstructured.NestedString(u.Object, "spec", "subscriber", "uri")
	d := &durable{channel: channel + "." + u.GetNamespace(), subscriber: uri}
	var err error
	d.sub, err = p.nats.Subscribe(d.channel, string(u.GetUID()), redelivery, 64, func(event []byte) error {
		err := p.deliver(d.subscriber, event)
		if err != nil {
			p.log("%s: %v", d.channel, err)
		}
		return err // then it comes again
	})
	if err != nil {
		p.log("cannot subscribe to %s: %v", d.channel, err)
		return
	}
	p.subscriptions[string(u.GetUID())] = d
}

// deliver hands an event on: to an endpoint, or to the Broker of a namespace.
func (p *EventPath) deliver(to string, raw []byte) error {
	var m message
	if err := json.Unmarshal(raw, &m); err != nil {
		return err
	}
	const broker = "http://default-broker."
	namespace, toBroker := strings.CutPrefix(to, broker)
	if !toBroker {
		return p.post(to, m)
	}
	namespace, _, _ = strings.Cut(strings.TrimSuffix(namespace, "/"), ".")
	var all []error
	for _, obj := range p.triggers.informer.GetStore().List() {
		trigger := obj.(*unstructured.Unstructured)
		if trigger.GetNamespace() != namespace || trigger.GetDeletionTimestamp() != nil || !isReady(trigger) || !matches(trigger, m.Header) {
			continue
		}
		uri, _, _ := unstructured.NestedString(trigger.Object, "spec", "subscriber", "uri")
		all = append(all, p.post(uri, m))
	}
	return errors.Join(all...)
}

// matches compares the attributes of a Trigger with those of an event.
func matches(trigger *unstructured.Unstructured, header http.Header) bool {
	attributes, _, _ := unstructured.NestedStringMap(trigger.Object, "spec", "filter", "attributes")
	for name, want := range attributes {
		if want != "" && header.Get("Ce-"+name) != want {
			return false
		}
	}
	return true
}

func (p *EventPath) post(to string, m message) error {
	req, err := http.NewRequestWithContext(p.ctx, http.MethodPost, to, bytes.NewReader(m.Body))
	if err != nil {
		return err
	}
	req.Header = m.Header.Clone()
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s", to, resp.Status)
	}
	return nil
}

// channelFor finds the Channel that the Event Bus made for a kind of event.
func (p *EventPath) channelFor(source, eventType, version string) *unstructured.Unstructured {
	for _, obj := range p.channels.informer.GetStore().List() {
		u := obj.(*unstructured.Unstructured)
		labels := u.GetLabels()
		if u.GetNamespace() == SystemNamespace && labels["kyma-source-id"] == source && labels["kyma-event-type"] == eventType && labels["kyma-event-type-version"] == version {
			return u
		}
	}
	return nil
}

// endpoint is a pod that a Service with this selector would send a request to:
// one that is ready and not about to end, each in turn; nil if there is none.
func (p *EventPath) endpoint(namespace, label, value string) *unstructured.Unstructured {
	ready := p.endpoints(namespace, label, value)
	if len(ready) == 0 {
		return nil
	}
	return ready[p.turn.Add(1)%uint64(len(ready))]
}

func (p *EventPath) endpoints(namespace, label, value string) []*unstructured.Unstructured {
	var ready []*unstructured.Unstructured
	for _, obj := range p.pods.informer.GetStore().List() {
		pod := obj.(*unstructured.Unstructured)
		if pod.GetNamespace() == namespace && pod.GetLabels()[label] == value && pod.GetDeletionTimestamp() == nil && isReady(pod) {
			ready = append(ready, pod)
		}
	}
	return ready
}

// onMesh says whether a pod of an event-service posts to the mesh.
func onMesh(pod *unstructured.Unstructured) bool {
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	return slices.ContainsFunc(containers, func(c any) bool {
		args, _, _ := unstructured.NestedStringSlice(c.(map[string]any), "args")
		return slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--eventMeshURL=") })
	})
}
