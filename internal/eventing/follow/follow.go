// Package follow lets a controller that is not the leader deliver the events of all Subscriptions.
// It writes nothing, and uses the consumers that the leader has created. It reads Subscriptions
// from a cache, which may be stale. Each consumer has the generation of the Subscription that it
// was last updated for; nothing is delivered while the cache has an earlier one.
package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/connection"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fleet"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/peers"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/plan"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/pull"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

const (
	// followAgain is when a consumer is asked for again that is not there, or that is older than
	// the cache of this process; soonAgain is for a cache that is behind.
	followAgain = 2 * time.Second
	soonAgain   = 100 * time.Millisecond

	// aboutSpec is what the leader asks the others about.
	aboutSpec = "spec"
)

// Options are what a Follower works with. All are required.
type Options struct {
	// Reader is the cache. Namespace is where the ConfigMap Backends is.
	Reader    client.Reader
	Namespace string
	Names     backend.Names

	Connection *connection.Connection
	Deliveries *delivery.Deliveries
	Fleet      *fleet.Fleet
	Peers      *peers.Peers
	Log        *zap.Logger
	// Subscription lets one be reconciled after a time, and All lets all of them, by the leader's
	// turns if this process leads.
	Subscription func(key types.NamespacedName, after time.Duration)
	All          func(ctx context.Context, leads bool) error
}

// Follower delivers until this process leads.
type Follower struct {
	Options

	// reconciling is held by each reconciliation here, and by the end of this: those of the
	// leader begin after it.
	reconciling sync.RWMutex
	leads       bool

	mu  sync.Mutex
	now state
	// attended are the Subscriptions whose events are delivered, and least what they must be at
	// least, as the leader says.
	attended map[types.NamespacedName]attended
	least    map[types.NamespacedName]spec
}

// state is what backends there are, by which connection to NATS.
type state struct {
	known    bool
	backends backend.Backends
	connects int
}

// spec says which spec of which Subscription is meant.
type spec struct {
	UID        types.UID `json:"uid"`
	Generation int64     `json:"generation"`
}

// before tells whether a spec is an earlier one than another, or of another Subscription.
func (s spec) before(other spec) bool { return s.UID != other.UID || s.Generation < other.Generation }

type attended struct {
	spec     spec
	connects int
}

// New returns a Follower. It hears what the leader asks.
func New(o Options) *Follower {
	f := &Follower{Options: o, attended: map[types.NamespacedName]attended{}, least: map[types.NamespacedName]spec{}}
	o.Peers.On(aboutSpec, f.outdated)
	return f
}

// Lead ends the following: from now on, only the leader's turns say what this process delivers.
func (f *Follower) Lead() {
	f.reconciling.RLock()
	done := f.leads
	f.reconciling.RUnlock()
	if done {
		return
	}
	f.reconciling.Lock()
	defer f.reconciling.Unlock()
	f.leads = true
}

// Leading tells whether this process leads.
func (f *Follower) Leading() bool {
	f.reconciling.RLock()
	defer f.reconciling.RUnlock()
	return f.leads
}

// ReconcileBackends follows the backends, with what the cache knows.
func (f *Follower) ReconcileBackends(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	f.reconciling.RLock()
	defer f.reconciling.RUnlock()
	if f.leads {
		return reconcile.Result{}, nil
	}
	key := types.NamespacedName{Namespace: f.Namespace, Name: f.Names.Backends()}
	var config corev1.ConfigMap
	switch err := f.Reader.Get(ctx, key, &config); {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil // what was delivered is delivered on
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("cannot read ConfigMap %s: %w", key, err)
	}
	next := state{known: true}
	var err error
	if next.backends, err = backend.ParseBackends(config.Data); err != nil {
		f.Log.Error("ConfigMap is not understood: what was delivered is delivered on", zap.Stringer("configMap", key), zap.Error(err))
		return reconcile.Result{}, nil
	}
	if next.backends.Undecided() {
		return reconcile.Result{}, nil // as without it
	}
	again := time.Duration(0)
	if next.backends.NATS == nil {
		f.Connection.Close()
	} else if err := f.Connection.Use(next.backends.NATS); err != nil {
		f.Log.Warn("cannot connect to NATS", zap.Error(err))
		again = followAgain
	}
	_, next.connects, _ = f.Connection.JetStream()
	f.mu.Lock()
	changed := !f.now.known || f.now.connects != next.connects || !maps.Equal(f.now.backends.Data(), next.backends.Data())
	f.now = next
	f.mu.Unlock()
	if changed {
		f.Log.Info("following", zap.String("backends", next.backends.Serving.String()), zap.String("epoch", next.backends.Epoch))
		return reconcile.Result{RequeueAfter: again}, f.All(ctx, false)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// Reconcile delivers the events of a Subscription, if there is a consumer for it.
func (f *Follower) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	f.reconciling.RLock()
	defer f.reconciling.RUnlock()
	if f.leads {
		return reconcile.Result{}, nil
	}
	var is stored.Subscription
	s := &is.Subscription
	switch err := f.Reader.Get(ctx, r.NamespacedName, &is); {
	case apierrors.IsNotFound(err):
		f.forget(r.NamespacedName)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	case !s.DeletionTimestamp.IsZero():
		f.forget(r.NamespacedName)
		return reconcile.Result{}, nil
	}
	f.mu.Lock()
	now := f.now
	f.mu.Unlock()
	p, problems := plan.Of(s)
	switch {
	case !now.known:
		return reconcile.Result{}, nil
	case is.Problem != nil, len(problems) > 0, !now.backends.Serving.Has(operatorv1alpha1.NATS):
		f.stop(r.NamespacedName)
		return reconcile.Result{}, nil
	}
	return f.attend(ctx, s, &p), nil
}

// attend delivers from the consumer of a Subscription, if that was made for it.
func (f *Follower) attend(ctx context.Context, s *eventingv1alpha2.Subscription, p *plan.Plan) reconcile.Result {
	key, is := client.ObjectKeyFromObject(s), spec{s.UID, s.Generation}
	js, connects, err := f.Connection.JetStream()
	if err != nil {
		return reconcile.Result{} // it comes again with the connection
	}
	f.mu.Lock()
	known := f.attended[key] == attended{is, connects}
	least, bound := f.least[key]
	f.mu.Unlock()
	switch {
	case known:
		return reconcile.Result{}
	case bound && is.before(least):
		f.stop(key)
		return reconcile.Result{RequeueAfter: soonAgain}
	}
	of, err := madeFor(ctx, js, key)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		f.stop(key)
		return reconcile.Result{RequeueAfter: followAgain}
	case err != nil:
		f.Log.Debug("cannot read a consumer", zap.Stringer("subscription", key), zap.Error(err))
		return reconcile.Result{RequeueAfter: followAgain}
	case of.UID == is.UID && is.Generation < of.Generation:
		f.stop(key)
		return reconcile.Result{RequeueAfter: soonAgain}
	case of.UID != is.UID, of.Generation == 0: // the leader has not made it yet, or is of an earlier version
		f.stop(key)
		return reconcile.Result{RequeueAfter: followAgain}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if least, bound := f.least[key]; bound && is.before(least) { // the leader said so meanwhile
		return reconcile.Result{RequeueAfter: soonAgain}
	}
	if err := f.Deliveries.Set(key, p.Settings(s), SourceOf(js, key)); err != nil {
		f.Log.Debug("cannot deliver", zap.Stringer("subscription", key), zap.Error(err))
		return reconcile.Result{RequeueAfter: followAgain}
	}
	delete(f.least, key)
	f.attended[key] = attended{is, connects}
	return reconcile.Result{}
}

// madeFor reads for which Subscription and which generation of it its consumer was made.
func madeFor(ctx context.Context, js jetstream.JetStream, key types.NamespacedName) (of spec, err error) {
	c, err := js.Consumer(ctx, backend.Stream, backend.ConsumerName(key.Namespace, key.Name))
	if err != nil {
		return spec{}, err
	}
	of.UID = types.UID(c.CachedInfo().Config.Metadata[stream.UIDKey])
	of.Generation, _ = strconv.ParseInt(c.CachedInfo().Config.Metadata[stream.GenerationKey], 10, 64) // 0 is of an earlier version
	return of, nil
}

// SourceOf is the consumer of a Subscription.
func SourceOf(js jetstream.JetStream, key types.NamespacedName) pull.Source {
	return pull.Source{Conn: js.Conn(), Stream: backend.Stream, Consumer: backend.ConsumerName(key.Namespace, key.Name)}
}

func (f *Follower) stop(key types.NamespacedName) {
	f.Deliveries.Stop(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.attended, key)
}

func (f *Follower) forget(key types.NamespacedName) {
	f.stop(key)
	f.Deliveries.Forget(key)
	f.Fleet.Forget(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.least, key)
}

// Lost is called when NATS does not know a consumer any more.
func (f *Follower) Lost(key types.NamespacedName) {
	f.mu.Lock()
	delete(f.attended, key)
	f.mu.Unlock()
	f.Subscription(key, soonAgain)
}

// Lapsed is called when this process was not heard for a while. Others may deliver what it had, and
// what it knows may be old: it looks at everything again.
func (f *Follower) Lapsed() {
	f.Deliveries.Hold()
	f.mu.Lock()
	clear(f.attended)
	f.mu.Unlock()
	go func() { // this must not wait for a cache
		if err := f.All(context.Background(), f.Leading()); err != nil {
			f.Log.Warn("cannot list Subscriptions", zap.Error(err))
		}
	}()
}

// specRequest says what the spec of a Subscription is now.
type specRequest struct {
	Subscription types.NamespacedName `json:"subscription"`
	spec
}

// Tell tells the other controllers what the spec of a Subscription is now, so that none delivers by
// an earlier one. It returns the pods of those that do not answer; the error is as that of
// peers.Ask.
func (f *Follower) Tell(ctx context.Context, s *eventingv1alpha2.Subscription) (missing []string, err error) {
	return f.Peers.Ask(ctx, aboutSpec, specRequest{client.ObjectKeyFromObject(s), spec{s.UID, s.Generation}})
}

// outdated is told by the leader what a Subscription is now. When it returns, nothing is sent any
// more by what it was before.
func (f *Follower) outdated(_ string, content []byte) {
	var now specRequest
	if err := json.Unmarshal(content, &now); err != nil {
		f.Log.Warn("another controller said something that is not understood", zap.Error(err))
		return
	}
	key := now.Subscription
	f.mu.Lock()
	defer f.mu.Unlock()
	if is, known := f.attended[key]; known && !is.spec.before(now.spec) {
		return
	}
	f.least[key] = now.spec
	delete(f.attended, key)
	if f.Deliveries.Outdated(key, now.UID, now.Generation) {
		f.Log.Debug("the spec of a Subscription is another one", zap.Stringer("subscription", key))
	}
	f.Subscription(key, 0)
}
