package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/connection"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/mesh"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

const (
	// sweepEvery is how often leftovers are looked for. Nothing tells of them.
	sweepEvery = 10 * time.Minute
	// askAgain is when a stream that is not there is asked for again. NATS tells nobody that one
	// was created.
	askAgain = 2 * time.Second
)

// state is what Subscriptions are judged against.
type state struct {
	// asked is false before the ConfigMap was read for the first time; known is false if it is not
	// there.
	asked, known bool
	backends     backend.Backends
	// created is when the stream was created; zero if there is none. connects says which connection
	// to NATS said so.
	created  time.Time
	connects int
	// keepsTaken: the stream keeps what all have taken (stream.KeepsTaken).
	keepsTaken bool
	// broker is that of the mesh; without UID there is none.
	broker mesh.Broker
	// meshWaits is what the Trigger of the mesh waits for, "" if events come through it. meshFailed
	// is why that could not be found out.
	meshWaits  string
	meshFailed error
	// meshRefuses is why the mesh refuses each event, "" if it does not.
	meshRefuses mesh.Refuses
	// round is that of the readiness of Subscriptions.
	round int
}

func (c *Controller) backendsKey() types.NamespacedName {
	return types.NamespacedName{Namespace: c.options.Namespace, Name: c.options.Names.Backends()}
}

// reconcileBackends reads which backends serve, from the API server and not from a cache, takes
// that over, and says so.
func (c *Controller) reconcileBackends(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	c.follower.Lead()
	var config corev1.ConfigMap
	switch err := c.live.Get(ctx, c.backendsKey(), &config); {
	case apierrors.IsNotFound(err): // the operator creates it again
		return reconcile.Result{}, serveOn(ctx, c)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("cannot read ConfigMap %s: %w", c.backendsKey(), err)
	}
	next := state{asked: true, known: true}
	var err error
	if next.backends, err = backend.ParseBackends(config.Data); err != nil {
		c.log.Error("ConfigMap is not understood: what was served is served on. Next: fix it, or restart the operator",
			zap.Stringer("configMap", c.backendsKey()), zap.Error(err))
		return reconcile.Result{}, nil
	}
	if next.backends.Undecided() {
		return reconcile.Result{}, serveOn(ctx, c)
	}
	again := sweepEvery
	switch err := c.findStream(ctx, &next); {
	case next.backends.NATS == nil, err == nil:
	case errors.Is(err, jetstream.ErrStreamNotFound):
		c.log.Info("the stream does not exist yet")
		again = askAgain
	default:
		c.log.Warn("NATS does not answer", zap.Error(err))
		again = askAgain
	}
	if err := c.findBroker(ctx, &next); err != nil {
		return reconcile.Result{}, err
	}
	if next.meshFailed != nil {
		c.log.Warn("cannot look after the Trigger", zap.Error(next.meshFailed))
		again = min(again, askAgain)
	}
	if next.serves(operatorv1alpha1.EventMesh) && next.broker.UID == "" {
		c.log.Info("the Broker does not exist yet", zap.String("broker", next.broker.Name))
		again = min(again, askAgain)
	}
	if c.take(&next, false) {
		c.log.Info("serving", zap.String("backends", next.backends.Serving.String()), zap.String("epoch", next.backends.Epoch), zap.Time("stream", next.created))
		if err := enqueueAll(ctx, c.client, &c.subscriptions); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := c.leaveMesh(ctx, &next); err != nil {
		return reconcile.Result{}, err
	}
	if err := c.report(ctx, &next); err != nil {
		return reconcile.Result{}, err
	}
	if err := c.sweep(ctx, next); err != nil {
		c.log.Warn("cannot look for leftovers", zap.Error(err))
		again = min(again, time.Minute)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// serveOn goes on with what was served. If nothing was, nothing is known.
func serveOn(ctx context.Context, c *Controller) error {
	if c.take(&state{asked: true}, true) {
		return enqueueAll(ctx, c.client, &c.subscriptions)
	}
	return nil
}

// followBackends tells what serves to what this process does without leading.
func followBackends(ctx context.Context, c *Controller, r reconcile.Request) (reconcile.Result, error) {
	var config corev1.ConfigMap
	switch err := c.client.Get(ctx, c.backendsKey(), &config); {
	case apierrors.IsNotFound(err): // what was served is served on
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("cannot read ConfigMap %s: %w", c.backendsKey(), err)
	default:
		if b, err := backend.ParseBackends(config.Data); err == nil && !b.Undecided() {
			c.roster.Use(b.Serving.Has(operatorv1alpha1.EventMesh))
		}
	}
	return c.follower.ReconcileBackends(ctx, r)
}

// findStream connects, and asks for the stream.
func (c *Controller) findStream(ctx context.Context, s *state) (err error) {
	if s.backends.NATS == nil {
		c.connection.Close()
		return nil
	}
	c.mu.Lock()
	before := c.state
	c.mu.Unlock()
	if err = c.connection.Use(s.backends.NATS); err == nil {
		var config jetstream.StreamConfig
		s.created, config, s.connects, err = c.connection.Stream(ctx)
		s.keepsTaken = err == nil && stream.KeepsTaken(config)
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		s.created, s.connects, s.keepsTaken = before.created, before.connects, before.keepsTaken // nothing is known of a change
	}
	return err
}

// take makes a state the present one, and tells whether that is a change. first takes it only if
// there is none.
func (c *Controller) take(s *state, first bool) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first && c.state.asked {
		return false
	}
	s.round = c.state.round
	changed = c.state.asked != s.asked || c.state.known != s.known || c.state.connects != s.connects || !c.state.created.Equal(s.created) || c.state.keepsTaken != s.keepsTaken || c.state.broker != s.broker || c.state.meshWaits != s.meshWaits ||
		!maps.Equal(c.state.backends.Data(), s.backends.Data())
	if c.state.connects != s.connects || !c.state.created.Equal(s.created) || c.state.broker != s.broker {
		c.swept = time.Time{}
	}
	if changed {
		s.round = c.ready.Begin(s.backends.Serving)
	}
	c.state = *s
	return changed
}

// report says which backends are followed now, and on which of them all Subscriptions are ready. It
// writes only what is new.
func (c *Controller) report(ctx context.Context, s *state) error {
	of := s.backends
	ready, unread := c.ready.Tell(ctx, s.round) // what is followed is said nevertheless
	key := types.NamespacedName{Namespace: c.options.Namespace, Name: c.options.Names.ControllerState()}
	want := backend.ControllerState{Epoch: of.Epoch, ObservedServing: of.Serving, Leader: c.options.Pod, APICertificate: c.identity.Pin, Ready: ready, MeshRefuses: string(s.meshRefuses), At: time.Now()}
	var config corev1.ConfigMap
	err := c.live.Get(ctx, key, &config)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("ConfigMap %s does not exist yet: the operator creates it", key)
	}
	is, bad := backend.ParseControllerState(config.Data)
	is.At = want.At // alone it is nothing new
	if err == nil && (bad != nil || !maps.Equal(is.Data(), want.Data())) {
		config.Data = want.Data()
		// With the version that was read: a former leader that wakes up does not overwrite what the
		// present one says.
		err = c.client.Update(ctx, &config)
	}
	if err != nil {
		return fmt.Errorf("cannot write ConfigMap %s: %w", key, err)
	}
	if c.ready.Said(s.round, ready) { // their statuses were held
		return enqueueAll(ctx, c.client, &c.subscriptions)
	}
	return unread
}

// enqueueAll lets each Subscription be reconciled.
func enqueueAll(ctx context.Context, reader client.Reader, to *queue) error {
	var list stored.SubscriptionList
	if err := reader.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		to.add(client.ObjectKeyFromObject(&list.Items[i]), 0)
	}
	return nil
}

// sweep compares consumers with Subscriptions, after each connection to NATS and from
// time to time. It only finds; the reconciliation of its key acts, after it has read again.
func (c *Controller) sweep(ctx context.Context, s state) error {
	c.mu.Lock()
	due, first := time.Since(c.swept) >= sweepEvery, c.swept.IsZero()
	c.mu.Unlock()
	if !due {
		return nil
	}
	// Consumers first: each had its Subscription before, so one without Subscription in the later
	// list has lost it.
	consumers, err := consumersOf(ctx, c.connection, s)
	if err != nil {
		return err
	}
	if len(consumers) == 0 && s.created.IsZero() {
		return nil
	}
	all, _, err := c.ready.List(ctx)
	if err != nil {
		return err
	}
	subscriptions := map[types.NamespacedName]bool{}
	for _, s := range all {
		subscriptions[s.NamespacedName] = true
	}
	keys := map[types.NamespacedName]bool{}
	c.mu.Lock()
	for key := range consumers {
		if subscriptions[key] {
			continue
		}
		keys[key] = true
		if _, found := c.leftover[key]; !found {
			c.leftover[key] = time.Now()
			c.log.Warn("a consumer has no Subscription: it is kept for a while, because a backup may be restored", zap.Stringer("subscription", key), zap.Duration("for", c.options.KeepConsumers))
		}
	}
	maps.DeleteFunc(c.leftover, func(key types.NamespacedName, _ time.Time) bool { return subscriptions[key] || consumers[key] == nil })
	for key := range c.made {
		if consumers[key] == nil && !s.created.IsZero() {
			delete(c.made, key)
			keys[key] = true
		}
	}
	c.swept = time.Now()
	c.mu.Unlock()
	for key := range keys {
		c.subscriptions.add(key, 0)
	}
	if !s.created.IsZero() {
		c.purges.later(first)
	}
	return nil
}

// consumersOf are the consumers in NATS by their Subscriptions. Without a stream, there are none.
func consumersOf(ctx context.Context, of *connection.Connection, s state) (map[types.NamespacedName]*jetstream.ConsumerInfo, error) {
	if s.created.IsZero() {
		return nil, nil
	}
	js, _, err := of.JetStream()
	if err != nil {
		return nil, err
	}
	in, err := js.Stream(ctx, backend.Stream)
	if err != nil {
		return nil, err
	}
	all := map[types.NamespacedName]*jetstream.ConsumerInfo{}
	list := in.ListConsumers(ctx)
	for info := range list.Info() {
		if namespace, name, ok := stream.Subscription(info.Config); ok {
			all[types.NamespacedName{Namespace: namespace, Name: name}] = info
		}
	}
	return all, list.Err()
}

// serves tells whether a backend delivers events.
func (s *state) serves(b operatorv1alpha1.BackendType) bool { return s.backends.Serving.Has(b) }
