package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/access"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/page"
)

const (
	// pageRequests and pageBurst bound what people who look at the page cost. They take nothing
	// from what the operator itself may ask.
	pageRequests, pageBurst = 50, 200
	// announceAgain is how soon the page is announced again after a failure, and announceEvery how
	// soon that is checked.
	announceAgain, announceEvery = 10 * time.Second, time.Minute
)

// pageRunner serves the page while this operator leads. Without it, eventing works as well.
type pageRunner struct {
	address, pod string
	names        backend.Names
	namespace    string
	client       client.Client
	reader       client.Reader
	access       *access.Access
	cluster      *inspect.Cluster
	log          *zap.Logger
}

func newPage(cfg *rest.Config, c client.Client, reader client.Reader, o Options, pod string, log *zap.Logger) (*pageRunner, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = pageRequests, pageBurst
	cluster, err := inspect.New(cfg)
	if err != nil {
		return nil, err
	}
	asks, err := client.New(cfg, client.Options{Scheme: c.Scheme()})
	if err != nil {
		return nil, err
	}
	return &pageRunner{
		address: o.PageAddress, pod: pod, names: backend.Names(o.Prefix), namespace: o.Namespace, client: c, reader: reader,
		access: &access.Access{Client: asks, Reader: asks}, cluster: cluster, log: log.Named("page"),
	}, nil
}

// Start implements manager.Runnable.
func (p *pageRunner) Start(ctx context.Context) error {
	if err := p.serve(ctx); err != nil {
		p.log.Error("the page cannot be shown: eventing works without it", zap.Error(err))
	}
	return nil
}

func (p *pageRunner) serve(ctx context.Context) error {
	identity, err := access.NewIdentity(backend.Operator)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.address)
	if err != nil {
		return fmt.Errorf("cannot listen at %s: %w", p.address, err)
	}
	go p.announce(ctx, identity.Pin)
	s := &page.Server{Read: p.read, Rights: &page.Rights{Access: p.access}, Log: p.log}
	return s.Serve(ctx, listener, identity)
}

// announce tells people which pod has the page, and by which certificate they know it. The chart
// creates the ConfigMap, so that it goes with the chart.
func (p *pageRunner) announce(ctx context.Context, pin string) {
	for {
		err := p.write(ctx, map[string]string{backend.PagePod: p.pod, backend.PageCertificate: pin})
		next := announceEvery
		if err != nil && ctx.Err() == nil {
			p.log.Error("nobody can find the page yet", zap.Error(err))
			next = announceAgain
		}
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return
		}
	}
}

func (p *pageRunner) write(ctx context.Context, data map[string]string) error {
	var config corev1.ConfigMap
	key := client.ObjectKey{Namespace: p.namespace, Name: p.names.ManagerPage()}
	switch err := p.reader.Get(ctx, key, &config); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("ConfigMap %s does not exist: install the chart eventing-manager with page.enabled=true", key)
	case err != nil:
		return err
	}
	if maps.Equal(config.Data, data) {
		return nil
	}
	config.Data = data
	return p.client.Update(ctx, &config) // it has the version that was read
}

// read reads what the page shows. What cannot be read is named there.
func (p *pageRunner) read(ctx context.Context) (*page.State, error) {
	s := &page.State{At: time.Now(), Home: inspect.Home{Namespace: p.namespace, Names: p.names}}
	var err error
	note := func(err error) {
		if err != nil {
			s.NotRead = append(s.NotRead, err.Error())
		}
	}
	s.Eventings, _, err = p.cluster.Eventings(ctx)
	if _, absent := errors.AsType[*inspect.NotInstalledError](err); !absent {
		note(err)
	}
	s.Programs, err = p.cluster.Programs(ctx, s.Home)
	note(err)
	s.Subscriptions, err = p.cluster.Subscriptions(ctx, "", s.At)
	note(err)
	s.VolumeUsed = gauge(metrics.Registry, volumeName)
	return s, ctx.Err()
}

// gauge is the value of a metric that has no labels, nil if there is none.
func gauge(from prometheus.Gatherer, name string) *float64 {
	all, err := from.Gather()
	if err != nil {
		return nil
	}
	for _, family := range all {
		if family.GetName() == name && len(family.GetMetric()) == 1 {
			value := family.GetMetric()[0].GetGauge().GetValue()
			return &value
		}
	}
	return nil
}
