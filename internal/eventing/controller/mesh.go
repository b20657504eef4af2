package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/mesh"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/plan"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
)

const (
	// meshPatience is how long the status of a Subscription says nothing of what the mesh waits
	// for, and messagePatience how long another message waits for its turn. Of many Subscriptions,
	// each would be written for each step of Knative. So both are at least waitingPatience for each
	// one that waits: together they are written about once in this time.
	meshPatience    = 10 * time.Second
	messagePatience = 45 * time.Second
	waitingPatience = time.Second
	// maxDeliverHeader bounds the header of a request: attributes of an event have at most 16 KiB
	// together.
	maxDeliverHeader = 64 << 10
)

// deliverMesh creates the Triggers of a Subscription, and finds out whether they are ready.
func (c *Controller) deliverMesh(ctx context.Context, s *eventingv1alpha2.Subscription, now state, f *findings) error {
	err := c.ensureFinalizer(ctx, s)
	if err == nil {
		err = c.triggers.Ensure(ctx, s, now.broker)
	}
	notReady := mesh.NotReady("")
	switch {
	case err == nil:
		f.ready[operatorv1alpha1.EventMesh] = true
	case errors.As(err, &notReady):
		f.because(string(notReady))
		return nil // a change of what it waits for is told
	default:
		f.because(err.Error())
	}
	return err
}

// patience has what the status of Subscriptions would say of the mesh, and since when.
type patience struct {
	mu sync.Mutex
	of map[types.NamespacedName]waiting
}

type waiting struct {
	message string
	since   time.Time
}

// left is how long the write of a status is put off that says no more than what the mesh waits for.
// What is written stays true: that other backends deliver, in an earlier epoch, or that the mesh
// does not.
func (p *patience) left(s *eventingv1alpha2.Subscription, f findings, now time.Time) time.Duration {
	key := client.ObjectKeyFromObject(s)
	said := len(s.Status.Backends) > 0 && !slices.ContainsFunc(s.Status.Backends, func(b eventingv1alpha2.BackendReadiness) bool {
		return b.ObservedGeneration != s.Generation || b.Ready && b.Type == string(operatorv1alpha1.EventMesh)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if !said || f.failed || !f.serving.Serving.Has(operatorv1alpha1.EventMesh) || f.ready[operatorv1alpha1.EventMesh] || len(f.problems) > 0 {
		delete(p.of, key)
		return 0
	}
	wait := meshPatience
	if !slices.ContainsFunc(s.Status.Backends, func(b eventingv1alpha2.BackendReadiness) bool { return b.Epoch != f.serving.Epoch }) {
		wait = messagePatience
	}
	w, known := p.of[key]
	if !known || w.message != f.why {
		w = waiting{f.why, now}
		p.of[key] = w
	}
	return max(wait, time.Duration(len(p.of))*waitingPatience) - now.Sub(w.since)
}

func (p *patience) forget(subscription types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, subscription)
}

// leaveMesh deletes the Triggers of a Subscription when the mesh delivers no events any more. That
// is asked again: a Channel without Triggers accepts events, and delivers them to nobody.
func (c *Controller) leaveMesh(ctx context.Context, key types.NamespacedName) error {
	if !c.triggers.Has(key) {
		return nil
	}
	var config corev1.ConfigMap
	if err := c.live.Get(ctx, c.backendsKey(), &config); err != nil {
		return fmt.Errorf("cannot read ConfigMap %s: %w", c.backendsKey(), err)
	}
	b, err := backend.ParseBackends(config.Data)
	if err != nil {
		return fmt.Errorf("cannot read ConfigMap %s: %w", c.backendsKey(), err)
	}
	if b.Serving.Has(operatorv1alpha1.EventMesh) {
		c.backends.add(c.backendsKey(), 0)
		return nil
	}
	return c.triggers.Delete(ctx, key)
}

// findBroker follows the Triggers as long as the mesh serves, or has some that are left, and reads
// the Broker. An error means that nothing is known of a change.
func (c *Controller) findBroker(ctx context.Context, s *state) error {
	serves := s.serves(operatorv1alpha1.EventMesh)
	c.mu.Lock()
	before := c.state
	same := c.state.known && c.state.backends.Epoch == s.backends.Epoch && time.Since(c.swept) < sweepEvery
	c.mu.Unlock()
	if !serves && same {
		return nil
	}
	err := c.triggers.Follow(ctx, serves)
	if err != nil && !errors.Is(err, mesh.ErrNoKind) || !serves {
		return ignore(err, mesh.ErrNoKind)
	}
	s.broker = mesh.Broker{Name: c.options.Names.Broker(), Epoch: s.backends.Epoch}
	if before.known && before.serves(operatorv1alpha1.EventMesh) && before.broker.Epoch != "" {
		// The Triggers carry it already. While this process leads and the mesh serves, nobody else
		// has seen a reason to delete them.
		s.broker.Epoch = before.broker.Epoch
	}
	if m := s.backends.Mesh; m != nil {
		s.broker.Name, s.broker.URL = cmp.Or(m.Broker, s.broker.Name), m.URL
	}
	if err == nil {
		s.broker.UID, err = c.triggers.BrokerUID(ctx, s.broker.Name)
	}
	return ignore(err, mesh.ErrNoKind)
}

func ignore(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}

// finder implements delivery.Finder.
type finder struct {
	cached, live client.Reader
	triggers     *mesh.Triggers
}

// Find implements delivery.Finder.
func (f finder) Find(ctx context.Context, key types.NamespacedName) (delivery.Settings, error) {
	s, err := f.read(ctx, key)
	if err != nil {
		return delivery.Settings{}, err
	}
	p, problems := plan.Of(&s.Subscription)
	if len(problems) > 0 || s.Problem != nil {
		return delivery.Settings{}, delivery.ErrInvalid
	}
	return delivery.Settings{UID: s.UID, Sink: s.Spec.Sink, MaxInFlight: p.InFlight, DeadLetterSink: s.Spec.DeadLetterSink}, nil
}

// Probed implements delivery.Finder.
func (f finder) Probed(ctx context.Context, key types.NamespacedName, trigger, eventType string) error {
	s, err := f.read(ctx, key)
	if err != nil {
		return err
	}
	f.triggers.Reached(ctx, &s.Subscription, trigger, eventType)
	return nil
}

func (f finder) read(ctx context.Context, key types.NamespacedName) (*stored.Subscription, error) {
	s := &stored.Subscription{}
	err := f.cached.Get(ctx, key, s)
	if apierrors.IsNotFound(err) || err == nil && !s.DeletionTimestamp.IsZero() {
		s = &stored.Subscription{} // the cache may not know yet that there is one, again
		err = f.live.Get(ctx, key, s)
	}
	switch {
	case apierrors.IsNotFound(err), err == nil && !s.DeletionTimestamp.IsZero():
		return nil, delivery.ErrGone
	case err != nil:
		return nil, fmt.Errorf("cannot read Subscription %s: %w", key, err)
	}
	return s, nil
}

// deliverServer is where the mesh posts events. Each process has one, the leader or not.
type deliverServer struct {
	address   string
	receiver  *delivery.Receiver
	log       *zap.Logger
	listening atomic.Bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*deliverServer) NeedLeaderElection() bool { return false }

// ready is an error until requests are answered. The caches have been read before.
func (d *deliverServer) ready(*http.Request) error {
	if d.address != "0" && !d.listening.Load() {
		return errors.New("events of the mesh are not accepted yet")
	}
	return nil
}

// Start implements manager.Runnable: it serves until ctx ends, and then until all requests are
// answered.
func (d *deliverServer) Start(ctx context.Context) error {
	if d.address == "0" {
		return nil
	}
	l, err := net.Listen("tcp", d.address)
	if err != nil {
		return fmt.Errorf("cannot listen for events of the mesh: %w", err)
	}
	server := &http.Server{
		Handler: d.receiver, ErrorLog: zap.NewStdLog(d.log.Named("deliver")), MaxHeaderBytes: maxDeliverHeader,
		ReadHeaderTimeout: backend.MeshEnd, ReadTimeout: backend.MeshEnd, WriteTimeout: 2 * backend.MeshEnd, IdleTimeout: 2 * time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	d.listening.Store(true)
	d.log.Info("accepting events of the mesh", zap.Stringer("address", l.Addr()))
	select {
	case err := <-served:
		return fmt.Errorf("cannot serve events of the mesh: %w", err)
	case <-ctx.Done():
	}
	if d.receiver.Used() {
		time.Sleep(backend.MeshDelay)
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), backend.MeshEnd)
	defer cancel()
	if err := server.Shutdown(limit); err != nil {
		d.log.Warn("requests of the mesh were not answered before the end: clients send their events again", zap.Error(err))
	}
	return nil
}
