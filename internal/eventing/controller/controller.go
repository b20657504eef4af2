package controller

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/zapr"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/access"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/announce"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/budget"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/connection"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/directory"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fence"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fleet"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/follow"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/mesh"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/peers"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/readiness"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/roster"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/tally"
	"github.com/kyma-project/eventmesh-migration/internal/tracing/otlp"
)

const (
	// reconcilers is how many Subscriptions are worked on at the same time. Most of the time, each
	// waits for the API server.
	reconcilers = 8
	firstRetry  = 200 * time.Millisecond
	lastRetry   = 30 * time.Second
	// The bound of requests to the API server a second, of this process.
	requests, burst = 100, 200
)

// Options are those of the process. All but DeadLetterSink, DNSServer and the addresses are
// required.
type Options struct {
	// Namespace is where the ConfigMaps, the Lease and this pod are. Pod is its name.
	Namespace, Pod string
	Names          backend.Names
	Version        string
	// SeedFile and CAFile are the seed of the user of NATS, and the CA of its servers.
	SeedFile, CAFile string
	// DeadLetterSink and DeadLetterAfter are as in delivery.Options.
	DeadLetterSink  *url.URL
	DeadLetterAfter time.Duration
	// EventBytes bounds the bytes of events in this process; see budget.Budget.
	EventBytes int64
	// MetricsAddress and HealthAddress are where Prometheus and probes ask: ":8080"; "0" is
	// nowhere.
	MetricsAddress, HealthAddress string
	// DeliverAddress is where the mesh posts events: ":8082"; "0" is nowhere.
	DeliverAddress string
	// LettersAddress is where people reach dead letters, with a port-forward: "localhost:8085"; ""
	// is nowhere.
	LettersAddress string
	// KeepConsumers is how long a consumer whose Subscription does not exist is kept, with its
	// events: a backup is restored one object after the other, and Subscriptions come late.
	KeepConsumers time.Duration
	// Lease is how long the others wait for a leader that is gone.
	Lease time.Duration
	// OTLPEndpoint is as in tracing.Start.
	OTLPEndpoint string
	// DNSServer is as in delivery.NewSender.
	DNSServer string
}

// Controller reconciles Subscriptions and follows the backends. It is made by Run.
type Controller struct {
	options    Options
	log        *zap.Logger
	lock       *fence.Fence
	client     client.Client
	live       client.Reader // reads that no cache answers
	metrics    *tally.Metrics
	deliveries *delivery.Deliveries
	receiver   *delivery.Receiver
	letters    *letters.Store
	dead       *deadLetters
	watches    delivery.Watches
	peers      *peers.Peers
	fleet      *fleet.Fleet
	follower   *follow.Follower
	identity   *access.Identity
	connection *connection.Connection
	trigger    *mesh.Trigger
	roster     *roster.Roster
	recorder   events.EventRecorder
	patience   patience
	ready      readiness.All
	details    details
	announcer  *announce.Announcer

	subscriptions, backends queue
	// followed are the queues of the follower.
	followed struct{ subscriptions, backends queue }
	purges   *purges

	mu    sync.Mutex
	state state
	// made is what is known of the consumer of each Subscription.
	made map[types.NamespacedName]made
	// leftover says since when there is a consumer of a Subscription that does not exist. Zero is
	// that of one whose deletion this process has seen.
	leftover map[types.NamespacedName]time.Time
	swept    time.Time
}

// Run runs the controller until the context ends, and then until the sinks have answered.
func Run(ctx context.Context, config *rest.Config, o Options, log *zap.Logger) error {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = requests, burst
	config.WarningHandler = rest.NoWarnings{} // each write would warn of the finalizer, whose name is Kyma's
	ctrl.SetLogger(zapr.NewLogger(log))
	lock, err := fence.New(config, o.Namespace, o.Names.ControllerLease(), o.Pod, renewal(o.Lease))
	if err != nil {
		return fmt.Errorf("cannot create a client for the Lease: %w", err)
	}
	anybody := rest.CopyConfig(config)
	config.Wrap(lock.Guard)
	mgr, err := newManager(config, o, lock, log)
	if err != nil {
		return fmt.Errorf("cannot connect to the API server: %w", err)
	}
	c := &Controller{
		options: o, log: log, lock: lock, client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder("eventing-controller"),
		made: map[types.NamespacedName]made{}, leftover: map[types.NamespacedName]time.Time{}, patience: patience{of: map[types.NamespacedName]waiting{}},
		details: details{of: map[types.NamespacedName]*detail{}},
	}
	c.announcer = announce.New(c.recorder)
	c.ready = readiness.All{Live: c.live, News: func() { c.backends.add(c.backendsKey(), 0) }}
	kinds, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot create a client for the mesh: %w", err)
	}
	// The process that gets a probe says so, and each says what it knows, the leader or not.
	probed, err := dynamic.NewForConfig(anybody)
	if err != nil {
		return fmt.Errorf("cannot create a client for the mesh: %w", err)
	}
	c.trigger = mesh.New(mesh.Options{
		Client: kinds, Probed: probed, Namespace: o.Namespace, Names: o.Names, Version: o.Version, Lease: o.Lease, Log: log,
		Changed: func() { c.backends.add(c.backendsKey(), 0) },
	})
	c.roster = roster.New(roster.Options{
		Client: probed, Leader: kinds, Namespace: o.Namespace, Name: o.Names.ControllerRoster(), Pod: o.Pod, Member: o.DeliverAddress != "0", Lease: o.Lease, Log: log,
		Open:  func(ctx context.Context) (roster.Subscriptions, error) { return directory.Open(ctx, probed, log) },
		Known: func(key types.NamespacedName) { c.subscriptions.add(key, 0) },
	})
	c.fleet = fleet.New(log, c.subscriptions.add)
	c.peers = peers.New(peers.Options{Pod: o.Pod, Log: log, Changed: c.fleet.Divide, Lapsed: func() { c.follower.Lapsed() }})
	c.connection = connection.New(connection.Options{
		SeedFile: o.SeedFile, CAFile: o.CAFile,
		Up: func() {
			c.backends.add(c.backendsKey(), 0)
			c.followed.backends.add(c.backendsKey(), 0)
		},
		Made: func(conn *nats.Conn) {
			if err := c.peers.Use(conn); err != nil {
				log.Error("cannot hear the other controllers", zap.Error(err))
			}
		},
	})
	c.metrics = tally.New(metrics.Registry)
	metrics.Registry.MustRegister(natsConnected{c})
	now := func() state {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.state
	}
	c.letters = &letters.Store{JetStream: lettersIn(c.connection, now)}
	c.dead = newDeadLetters(metrics.Registry)
	if c.identity, err = access.NewIdentity("eventing-controller"); err != nil {
		return fmt.Errorf("cannot create a certificate: %w", err)
	}
	sender := delivery.NewSender(o.DNSServer)
	if sender.Tracer, err = otlp.Start(ctx, o.OTLPEndpoint, "eventing-controller", log); err != nil {
		return err
	}
	defer sender.Tracer.Stop()
	deliver := delivery.Options{
		Sender: sender, Metrics: c.metrics, Log: log,
		DeadLetterSink: o.DeadLetterSink, DeadLetterAfter: o.DeadLetterAfter, DeadLetters: c.letters, Watches: &c.watches,
		Budget:  budget.New(o.EventBytes, sender),
		Live:    func() bool { return c.peers.Live() || c.follower.Leading() && c.peers.Mute() },
		Changed: c.subscriptions.add, Lost: c.lost,
	}
	c.deliveries, c.receiver = delivery.New(deliver), delivery.NewReceiver(deliver, finder{c.client, c.live, c.trigger, c.roster})
	c.fleet.Join(c.peers, c.deliveries, &c.watches)
	c.follower = follow.New(follow.Options{
		Reader: c.client, Namespace: o.Namespace, Names: o.Names, Connection: c.connection, Deliveries: c.deliveries, Fleet: c.fleet, Peers: c.peers, Log: log,
		Subscription: c.followed.subscriptions.add,
		All: func(ctx context.Context, leads bool) error {
			if leads {
				return enqueueAll(ctx, c.client, &c.subscriptions)
			}
			return enqueueAll(ctx, c.client, &c.followed.subscriptions)
		},
	})
	c.purges = &purges{connection: c.connection, lock: lock, log: log, filters: map[string]bool{}, state: now}
	if err := c.register(ctx, mgr); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(c.watchSaid(kinds))); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// renewal is how long the leader tries to renew its Lease.
func renewal(lease time.Duration) time.Duration { return lease * 2 / 3 }

// newManager returns a manager that leads while it holds the lock. It reads the ConfigMap with the
// backends, and of Services only names.
func newManager(config *rest.Config, o Options, lock *fence.Fence, log *zap.Logger) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, stored.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	grace := backend.ControllerGrace
	renew, retry := renewal(o.Lease), o.Lease/6
	return manager.New(config, manager.Options{
		Scheme: scheme,
		Logger: zapr.NewLogger(log),
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
					o.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", o.Names.Backends())},
				}},
				&corev1.Service{}: {Transform: onlyName},
			},
		},
		Metrics:                             metricsserver.Options{BindAddress: o.MetricsAddress, HandlerOpts: []func(*promhttp.HandlerOpts){openMetrics}},
		HealthProbeBindAddress:              o.HealthAddress,
		LeaderElection:                      true,
		LeaderElectionID:                    o.Names.ControllerLease(), // for the metric leader_election_master_status alone
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true, // Run is the last thing that the process does
		LeaseDuration:                       &o.Lease, RenewDeadline: &renew, RetryPeriod: &retry,
		GracefulShutdownTimeout: &grace,
	})
}

func (c *Controller) register(ctx context.Context, mgr manager.Manager) error {
	limiter := func() workqueue.TypedRateLimiter[reconcile.Request] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
	}
	appears := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &stored.Subscription{}, sinkIndex, sinkOf); err != nil {
		return fmt.Errorf("cannot index Subscriptions by their sinks: %w", err)
	}
	err := builder.ControllerManagedBy(mgr).Named("subscriptions").
		For(&stored.Subscription{}).
		WatchesMetadata(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(c.sinksOf), builder.WithPredicates(appears)).
		WatchesRawSource(source.TypedFunc[reconcile.Request](c.subscriptions.from)).
		WithOptions(controller.Options{MaxConcurrentReconciles: reconcilers, RateLimiter: limiter()}).
		Complete(reconcile.Func(c.reconcileSubscription))
	if err != nil {
		return err
	}
	err = builder.ControllerManagedBy(mgr).Named("backends").
		For(&corev1.ConfigMap{}).
		WatchesRawSource(source.TypedFunc[reconcile.Request](c.backends.from)).
		WithOptions(controller.Options{RateLimiter: limiter()}).
		Complete(reconcile.Func(c.reconcileBackends))
	if err != nil {
		return err
	}
	err = builder.ControllerManagedBy(mgr).Named("purges").
		WatchesRawSource(source.TypedFunc[reconcile.Request](c.purges.from)).
		WithOptions(controller.Options{RateLimiter: limiter()}).
		Complete(reconcile.Func(c.purges.reconcile))
	if err != nil {
		return err
	}
	if err := registerFollower(c, mgr, limiter); err != nil {
		return err
	}
	// Each process delivers what the mesh posts to it, and needs the Subscriptions for that.
	if _, err := mgr.GetCache().GetInformer(context.Background(), &stored.Subscription{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("cannot watch Subscriptions: %w", err)
	}
	server := &deliverServer{address: c.options.DeliverAddress, receiver: c.receiver, roster: c.roster, log: c.log}
	if err := mgr.Add(server); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", func(*http.Request) error { return nil }); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("deliver", server.ready); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(inspector{c}.run)); err != nil {
		return err
	}
	if err := mgr.Add(lettersRunner{c}); err != nil {
		return err
	}
	// The Lease is released when this has returned, so that no two processes deliver in turns.
	err = mgr.Add(manager.RunnableFunc(func(context.Context) error {
		c.follower.Lead()
		c.backends.add(c.backendsKey(), 0) // also if there is no ConfigMap, which nobody tells
		return nil
	}))
	if err != nil {
		return err
	}
	return mgr.Add(onEach(func(ctx context.Context) error {
		<-ctx.Done()
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), backend.ControllerEnd)
		defer cancel()
		if err := c.deliveries.StopAll(limit); err != nil {
			c.log.Warn("sinks did not answer before the end: NATS sends their events again", zap.Error(err))
		}
		c.connection.Close()
		c.trigger.Leave()
		return nil
	}))
}

// registerFollower registers what each process does, the leader or not.
func registerFollower(c *Controller, mgr manager.Manager, limiter func() workqueue.TypedRateLimiter[reconcile.Request]) error {
	everywhere := new(bool) // needs no leader
	err := builder.ControllerManagedBy(mgr).Named("deliveries").
		For(&stored.Subscription{}).
		WatchesRawSource(source.TypedFunc[reconcile.Request](c.followed.subscriptions.from)).
		WithOptions(controller.Options{MaxConcurrentReconciles: reconcilers, RateLimiter: limiter(), NeedLeaderElection: everywhere}).
		Complete(reconcile.Func(c.follower.Reconcile))
	if err != nil {
		return err
	}
	err = builder.ControllerManagedBy(mgr).Named("deliveries-backends").
		For(&corev1.ConfigMap{}).
		WatchesRawSource(source.TypedFunc[reconcile.Request](c.followed.backends.from)).
		WithOptions(controller.Options{RateLimiter: limiter(), NeedLeaderElection: everywhere}).
		Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			return followBackends(ctx, c, r)
		}))
	if err != nil {
		return err
	}
	for _, run := range []func(context.Context) error{c.peers.Run, c.fleet.Run} {
		if err := mgr.Add(onEach(run)); err != nil {
			return err
		}
	}
	return nil
}

// onEach runs in each process, the leader or not.
type onEach func(context.Context) error

// Start implements manager.Runnable.
func (f onEach) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (onEach) NeedLeaderElection() bool { return false }

// onlyName leaves nothing of a Service but its name: that is all that is asked of it.
func onlyName(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.ObjectMeta = metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
	}
	return object, nil
}

// sinkIndex finds the Subscriptions of a namespace by the Service that is their sink. A controller
// that begins to lead is told of each Service of the cluster.
const sinkIndex = "sink"

func sinkOf(o client.Object) []string {
	s, ok := o.(*stored.Subscription)
	if !ok {
		return nil
	}
	sink, err := delivery.ParseSink(s.Namespace, s.Spec.Sink)
	if err != nil {
		return nil // its status says so
	}
	return []string{sink.Service}
}

// sinksOf are the Subscriptions whose sink is a Service.
func (c *Controller) sinksOf(ctx context.Context, service client.Object) (all []reconcile.Request) {
	var list stored.SubscriptionList
	if err := c.client.List(ctx, &list, client.InNamespace(service.GetNamespace()), client.MatchingFields{sinkIndex: service.GetName()}); err != nil {
		c.log.Warn("cannot list Subscriptions", zap.Error(err))
		return nil
	}
	for i := range list.Items {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return all
}

// lost is called when NATS does not know the consumer of a Subscription any more.
func (c *Controller) lost(subscription types.NamespacedName) {
	c.follower.Lost(subscription)
	c.mu.Lock()
	delete(c.made, subscription)
	c.mu.Unlock()
	c.backends.add(c.backendsKey(), 0) // perhaps the stream is another one
	c.subscriptions.add(subscription, time.Second)
}

// queue adds keys to the queue of a reconciler from outside of it. Before the reconciler has
// started, there is nothing to add to: it begins with all objects.
type queue struct {
	mu sync.Mutex
	of workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (q *queue) from(_ context.Context, of workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.of = of
	return nil
}

func (q *queue) add(key types.NamespacedName, after time.Duration) {
	q.mu.Lock()
	of := q.of
	q.mu.Unlock()
	if of != nil {
		of.AddAfter(reconcile.Request{NamespacedName: key}, after)
	}
}
