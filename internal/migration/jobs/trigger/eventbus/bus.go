// Package eventbus is the Event Bus as trigger-sync finds it when it deletes Kyma
// Subscriptions: what NATS Streaming still holds for them, what Knative has for them,
// and whether the subscription-controller runs, which cleans up after them.
package eventbus

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// reader is what is needed of a migration.Cluster.
type reader interface {
	List(context.Context, migration.Resource, string, migration.ListOptions) ([]*unstructured.Unstructured, error)
	Each(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured) error) error
	PodGet(ctx context.Context, namespace, pod string, port int, path string, query url.Values) ([]byte, error)
}

var (
	pods        = migration.CoreResource("", "pods", "Pod")
	deployments = migration.CoreResource("apps", "deployments", "Deployment")
	replicaSets = migration.CoreResource("apps", "replicasets", "ReplicaSet")
)

// Bus is what is left of the Event Bus.
type Bus struct {
	// Controller is who deletes what belongs to a Kyma Subscription, and removes its
	// finalizers; Problem is why it does not, although it has replicas.
	Controller Controller
	Problem    string
	// Links are the Knative Subscriptions of Kyma Subscriptions by name, Channels
	// their Channels.
	Links, Channels map[string]*unstructured.Unstructured
	// InFlight is what NATS Streaming still holds.
	InFlight InFlight
}

// Observe reads what is left of the Event Bus, but for what is in flight. link and
// channel are the kinds of Bus.Links and Bus.Channels.
func Observe(ctx context.Context, c reader, link, channel migration.Kind) (*Bus, error) {
	b := &Bus{Links: map[string]*unstructured.Unstructured{}, Channels: map[string]*unstructured.Unstructured{}}
	g, ctx := errgroup.WithContext(ctx)
	var scaled, sets, running []*unstructured.Unstructured
	for _, one := range []struct {
		resource migration.Resource
		trim     func(*unstructured.Unstructured)
		to       *[]*unstructured.Unstructured
	}{{deployments, trimScaled, &scaled}, {replicaSets, trimOwned, &sets}, {pods, trimPod, &running}} {
		g.Go(func() error {
			// Remembered, so that waits and rechecks go on from here.
			all, err := c.List(ctx, one.resource, kyma.SystemNamespace, migration.ListOptions{Trim: one.trim, PageSize: migration.LargePage})
			*one.to = all
			return err
		})
	}
	if link.Served {
		g.Go(func() error {
			// All of the namespace: a Channel stays for a subscriber of anybody.
			all, err := c.List(ctx, link.Resource, kyma.SystemNamespace, migration.ListOptions{Trim: Trim})
			for _, obj := range all {
				b.Links[obj.GetName()] = obj
			}
			return err
		})
	}
	if channel.Served {
		g.Go(func() error {
			opts := migration.ListOptions{LabelSelector: kyma.EventSourceLabel, Trim: trimChannel}
			return c.Each(ctx, channel.Resource, kyma.SystemNamespace, opts, func(obj *unstructured.Unstructured) error {
				b.Channels[obj.GetName()] = obj
				return nil
			})
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var deployment *unstructured.Unstructured
	for _, obj := range scaled {
		if obj.GetName() == ControllerRef.Name {
			deployment = obj
		}
	}
	b.Controller = NewController(deployment, sets, running)
	if b.Controller.Replicas() > 0 {
		b.Problem = b.Controller.Problem(time.Now())
	}
	return b, nil
}

// HasChannels says whether there is any Channel of the Event Bus.
func HasChannels(ctx context.Context, c reader, channel migration.Kind) (bool, error) {
	if !channel.Served {
		return false, nil
	}
	found := false
	err := c.Each(ctx, channel.Resource, kyma.SystemNamespace, migration.ListOptions{LabelSelector: kyma.EventSourceLabel, Trim: trimChannel}, func(*unstructured.Unstructured) error {
		found = true
		return nil
	})
	return found, err
}

// Unused are the Channels that no Knative Subscription is on, and that no Kyma Subscription
// wants, which wanted says by the source, type and version of events.
func (b *Bus) Unused(wanted func(source, eventType, version string) bool) []*unstructured.Unstructured {
	used := map[string]bool{}
	for _, link := range b.Links {
		used[SubscribesTo(link)] = true
	}
	var unused []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(b.Channels)) {
		channel := b.Channels[name]
		labels := channel.GetLabels()
		if !used[name] && channel.GetDeletionTimestamp() == nil && !kyma.OptedOut(channel) && !wanted(labels[kyma.EventSourceLabel], labels[kyma.EventTypeLabel], labels[kyma.EventTypeVersionLabel]) {
			unused = append(unused, channel)
		}
	}
	return unused
}

// LegacyLink returns the Knative Subscription that the Event Bus made for a Kyma
// Subscription, nil if there is none.
func (b *Bus) LegacyLink(sub *unstructured.Unstructured) *unstructured.Unstructured {
	return b.Links[kyma.LegacySubscriptionName(sub.GetNamespace(), sub.GetName())]
}

// Waiting is how many events wait to be delivered to a Subscription; why is set
// if that is not known. Without a Knative Subscription nothing is delivered.
func (b *Bus) Waiting(sub *unstructured.Unstructured) (n uint64, why string) {
	link := b.LegacyLink(sub)
	if link == nil {
		return 0, ""
	}
	return b.InFlight.Of(ChannelOf(link), kyma.NATSDurable(link.GetUID()))
}

// ChannelOf is the channel in NATS Streaming of a Kyma Subscription, "" if nothing
// is delivered to it.
func (b *Bus) ChannelOf(sub *unstructured.Unstructured) string {
	link := b.LegacyLink(sub)
	if link == nil {
		return ""
	}
	return ChannelOf(link)
}

// ChannelOf is the channel in NATS Streaming of a Knative Subscription.
func ChannelOf(link *unstructured.Unstructured) string {
	return kyma.NATSChannel(link.GetNamespace(), SubscribesTo(link))
}

// SubscribesTo is the name of the Channel that a Knative Subscription is on.
func SubscribesTo(link *unstructured.Unstructured) string {
	return k8sobject.Text(k8sobject.MapAt(link.Object, "spec", "channel")["name"])
}

// Trim keeps all of an object that is needed to create it again: it is the pre-image of
// its deletion.
func Trim(obj *unstructured.Unstructured) {
	delete(obj.Object, "status")
	k8sobject.TrimMeta(obj)
}

// trimChannel is Trim for a Channel of the Event Bus. Knative knows what subscribes to it.
func trimChannel(obj *unstructured.Unstructured) {
	Trim(obj)
	kyma.TrimSubscribers(obj)
}
