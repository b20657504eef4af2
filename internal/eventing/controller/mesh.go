package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/mesh"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/plan"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/roster"
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

// deliverMesh finds out whether events of the mesh reach a Subscription: the Trigger leads them to
// the controllers, and each of those knows the Subscription.
func (c *Controller) deliverMesh(ctx context.Context, s *eventingv1alpha2.Subscription, now state, f *findings) error {
	err := c.ensureFinalizer(ctx, s)
	switch {
	case err != nil:
		f.because(err.Error())
		return err
	case now.meshWaits != "":
		f.because(now.meshWaits)
		return nil // a change of what it waits for is told
	case judged(s, operatorv1alpha1.EventMesh, now.backends):
		f.ready[operatorv1alpha1.EventMesh] = true
		return nil
	}
	known, missing := c.roster.Ask(ctx, client.ObjectKeyFromObject(s), s.ResourceVersion)
	switch {
	case known:
		f.ready[operatorv1alpha1.EventMesh] = true
	case len(missing) > 0:
		f.because(fmt.Sprintf("not all controllers know it yet: %s does not, and is waited for up to %s", strings.Join(missing, ", "), c.roster.GoneAfter()))
	default:
		f.because("the controllers are asked whether all of them know it")
	}
	return nil
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
func (p *patience) left(s *eventingv1alpha2.Subscription, f findings, claims backend.Versions, now time.Time) time.Duration {
	key := client.ObjectKeyFromObject(s)
	said := len(s.Status.Backends) > 0 && !slices.ContainsFunc(s.Status.Backends, func(b eventingv1alpha2.BackendReadiness) bool {
		return b.ObservedGeneration != s.Generation || b.Ready && b.Type == string(operatorv1alpha1.EventMesh)
	})
	claimed := claims[operatorv1alpha1.EventMesh] != "" // which is not true any more
	p.mu.Lock()
	defer p.mu.Unlock()
	if !said || claimed || f.failed || !f.serving.Serving.Has(operatorv1alpha1.EventMesh) || f.ready[operatorv1alpha1.EventMesh] || len(f.problems) > 0 {
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

// leaveMesh deletes the Trigger when the mesh delivers no events any more.
func (c *Controller) leaveMesh(ctx context.Context, s *state) error {
	if !s.known || s.serves(operatorv1alpha1.EventMesh) || !c.trigger.Any() {
		return nil
	}
	return c.trigger.Delete(ctx)
}

// findBroker follows the Trigger as long as the mesh serves, or has one that is left, and finds out
// whether it leads the events of the Broker to the controllers. An error means that nothing is
// known of a change.
func (c *Controller) findBroker(ctx context.Context, s *state) error {
	serves := s.serves(operatorv1alpha1.EventMesh)
	c.mu.Lock()
	before := c.state
	same := c.state.known && c.state.backends.Epoch == s.backends.Epoch && time.Since(c.swept) < sweepEvery
	c.mu.Unlock()
	if !serves && same {
		return nil
	}
	err := c.trigger.Follow(ctx, serves)
	if err != nil && !errors.Is(err, mesh.ErrNoKind) || !serves {
		return ignore(err, mesh.ErrNoKind)
	}
	s.broker = mesh.Broker{Name: c.options.Names.Broker(), Epoch: s.backends.Epoch}
	if before.known && before.serves(operatorv1alpha1.EventMesh) && before.broker.Epoch != "" {
		// The Trigger carries it already. While this process leads and the mesh serves, nobody else
		// has seen a reason to delete them.
		s.broker.Epoch = before.broker.Epoch
	}
	if m := s.backends.Mesh; m != nil {
		s.broker.Name, s.broker.URL = cmp.Or(m.Broker, s.broker.Name), m.URL
	}
	if err == nil {
		s.broker.UID, err = c.trigger.BrokerUID(ctx, s.broker.Name)
	}
	if ignore(err, mesh.ErrNoKind) != nil {
		return err
	}
	err = c.trigger.Ensure(ctx, s.broker)
	notReady := mesh.NotReady("")
	switch {
	case err == nil:
		s.meshWaits = ""
	case errors.As(err, &notReady):
		s.meshWaits = string(notReady)
	case errors.As(err, &s.meshRefuses):
		s.meshWaits = string(s.meshRefuses)
	case before.known && before.broker == s.broker && before.meshWaits == "":
		return err // what was said is true until more is known
	default:
		s.meshWaits = err.Error()
		s.meshFailed = err
	}
	return nil
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
	trigger      *mesh.Trigger
	roster       *roster.Roster
}

// Match implements delivery.Finder.
func (f finder) Match(source, eventType string) ([]delivery.Recipient, error) {
	return f.roster.Match(source, eventType)
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
	return p.MeshSettings(&s.Subscription), nil
}

// Probed implements delivery.Finder.
func (f finder) Probed(ctx context.Context, trigger string) { f.trigger.Reached(ctx, trigger) }

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
	roster    *roster.Roster
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
	return d.roster.Ready()
}

// Start implements manager.Runnable: it serves until ctx ends, and then until all requests are
// answered.
func (d *deliverServer) Start(ctx context.Context) error {
	// The others have to count on this process until the last request is answered.
	rostered, leave := context.WithCancel(context.WithoutCancel(ctx))
	var following sync.WaitGroup
	following.Go(func() { d.roster.Run(rostered) })
	defer following.Wait()
	defer leave()
	if d.address == "0" {
		<-ctx.Done()
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
