package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1api "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

const (
	// connectBudget is how long a server that never answered is tried: a pod's
	// network may take some seconds to come up.
	connectBudget = 15 * time.Second
	// readTimeout bounds one read; a page of large objects may take a while.
	readTimeout = time.Minute
	// silence is after how long without an answer a person is told that the API server gives none.
	silence = 5 * time.Second
)

// Engine runs jobs against one cluster.
type Engine struct {
	opts Options

	counter k8sutil.Counter
	// account tells a token that was just rotated from an account that is gone.
	account k8sutil.Account
	served  *k8sutil.Served
	// reader refuses writes; writer is used inside run.write only.
	reader, writer dynamic.Interface
	lister         *k8sutil.Lister
	core           corev1.CoreV1Interface
	// metadata reads what says which journals there are, without what is in them.
	metadata metadata.Interface
	leases   coordinationv1.CoordinationV1Interface
	reviews  authorizationv1.SelfSubjectAccessReviewInterface
	server   string

	connected atomic.Bool
}

// New makes an engine. It opens no connection.
//
// A configuration without a limit of requests has none here, where client-go would make it 5 a
// second for each client: the engine bounds how much it does at a time by itself, and the API
// server has its priority and fairness. QPS, with Burst (default 10), or RateLimiter is one limit
// for all requests of the engine.
func New(cfg *rest.Config, opts Options) (*Engine, error) {
	if err := opts.Names.Validate(); err != nil {
		return nil, err
	}
	opts.setDefaults()
	e := &Engine{opts: opts, server: cfg.Host}
	cfg = write.Throttled(k8sutil.ReloadTokenFile(write.Configured(cfg)))
	cfg.Wrap(e.counter.Wrap)
	cfg.Wrap(k8sutil.TellSilence(silence,
		func() {
			e.opts.Log.Warn("the API server has not answered for "+silence.String()+"; the job waits for it", zap.String("server", e.server))
		},
		func() { e.opts.Log.Info("the API server answers again", zap.String("server", e.server)) }))
	readOnly := rest.CopyConfig(cfg)
	readOnly.Wrap(k8sutil.ReadOnly)
	var err error
	if e.writer, err = dynamic.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	if e.reader, err = dynamic.NewForConfig(readOnly); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	if e.lister, err = k8sutil.NewLister(readOnly, e.reader); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	if e.metadata, err = metadata.NewForConfig(readOnly); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	if e.core, err = corev1.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	if e.leases, err = coordinationv1.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	authorization, err := authorizationv1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	e.reviews = authorization.SelfSubjectAccessReviews()
	disco, err := discovery.NewDiscoveryClientForConfig(readOnly)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	e.served = k8sutil.NewServed(disco, e.read)
	return e, nil
}

// read repeats a read that failed for a moment.
func (e *Engine) read(ctx context.Context, op func(context.Context) error) error {
	budget := k8sutil.RetryBudget
	if !e.connected.Load() {
		budget = connectBudget
	}
	return k8sutil.Retry(ctx, budget, e.notify(), e.account.Watch(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		err := op(ctx)
		if !k8sutil.IsTransient(err) {
			e.connected.Store(true)
		}
		return err
	}))
}

// notify says once that a call keeps failing.
func (e *Engine) notify() func(error) {
	began, said := time.Now(), false
	return func(err error) {
		if !said && time.Since(began) > 3*time.Second {
			said = true
			if name := k8sutil.FailedWebhook(err); name != "" {
				e.opts.Log.Warn("an admission webhook does not answer the API server; retrying", zap.String("webhook", name), zap.Error(err))
				return
			}
			e.opts.Log.Warn("the API server is not responding reliably; retrying", zap.String("server", e.server), zap.Error(err))
			return
		}
		e.opts.Log.Debug("trying again", zap.Error(err))
	}
}

// journals is the store of a job's journals, for reading.
func (e *Engine) journals(job string) *journal.Store {
	return &journal.Store{
		Names: e.opts.Names,
		Job:   job, Namespace: e.opts.StateNamespace, Secrets: e.core.Secrets(e.opts.StateNamespace), Read: e.read,
		Meta: e.metadata.Resource(corev1api.SchemeGroupVersion.WithResource("secrets")).Namespace(e.opts.StateNamespace),
	}
}

// newLock is the Lease as one run of this engine sees it.
func (e *Engine) newLock(log *zap.Logger) *lease.Lock {
	l := lease.New(e.leases, e.opts.Names, e.opts.StateNamespace, e.opts.Identity, e.opts.LeaseDuration, log, e.read, &e.account)
	l.About = lease.About{User: e.opts.User, Host: e.opts.Host}
	l.MakeNamespace, l.Past = e.makeStateNamespace, e.journals("").Past
	if p, ok := e.opts.Progress.(LockProgress); ok {
		l.Waiting = p.WaitsForLock
	}
	return l
}

func (e *Engine) newCluster() *migration.Cluster {
	return e.clusterOf(nil)
}

// clusterOf is newCluster for a run that knows what an interrupted one has made.
func (e *Engine) clusterOf(made func(*unstructured.Unstructured) bool) *migration.Cluster {
	c := migration.NewCluster(migration.Connection{Client: e.reader, Lister: e.lister, Served: e.served, Read: e.read}, made)
	c.ExcludeNamespaces, c.OnlyNamespace, c.Budget = e.opts.ExcludeNamespaces, e.opts.OnlyNamespace, e.opts.Timeout
	return c
}
