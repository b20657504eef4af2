package controller

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/access"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/connection"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters"
	lettersserver "github.com/kyma-project/eventmesh-migration/internal/eventing/letters/server"
)

// lettersRunner lets people see and deliver dead letters, while this process leads. Events are
// delivered without it, too.
type lettersRunner struct{ *Controller }

// Start implements manager.Runnable.
func (c lettersRunner) Start(ctx context.Context) error {
	if c.options.LettersAddress == "" {
		return nil
	}
	server := &lettersserver.Server{Store: c.letters, Deliverer: c.deliveries, Watch: c.fleet.Watch, Access: &access.Access{Client: c.client, Reader: c.live}, Log: c.log}
	if err := server.Run(ctx, c.options.LettersAddress, c.identity); err != nil {
		c.log.Error("dead letters cannot be reached by people: events are delivered", zap.Error(err))
	}
	return nil
}

// lettersIn is the JetStream that dead letters are in.
func lettersIn(to *connection.Connection, now func() state) func() (jetstream.JetStream, error) {
	return func() (jetstream.JetStream, error) {
		if is := now(); is.known && is.backends.NATS == nil {
			return nil, letters.ErrNotStored
		}
		js, _, err := to.JetStream()
		return js, err
	}
}

// deadLetters is how many dead letters each Subscription has, those that are gone included.
type deadLetters struct {
	gauge *prometheus.GaugeVec

	mu sync.Mutex
	of map[types.NamespacedName]int64
}

func newDeadLetters(registry prometheus.Registerer) *deadLetters {
	d := &deadLetters{gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "eventing_dead_letters", Help: "Events that were given up and are stored, read every 4 seconds. A Subscription without any is not there.",
	}, []string{"subscription"})}
	registry.MustRegister(d.gauge)
	return d
}

// count returns the number of dead letters of a Subscription.
func (d *deadLetters) count(subscription types.NamespacedName) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of[subscription]
}

// set takes over what NATS says, by subject.
func (d *deadLetters) set(counts map[string]uint64) {
	now := map[types.NamespacedName]int64{}
	for subject, n := range counts {
		if namespace, name, ok := backend.ParseDeadLetterSubject(subject); ok {
			key := types.NamespacedName{Namespace: namespace, Name: name}
			now[key] = int64(n) //nolint:gosec // it does not reach 2^63
			d.gauge.WithLabelValues(key.String()).Set(float64(n))
		}
	}
	d.mu.Lock()
	before := d.of
	d.of = now
	d.mu.Unlock()
	for key := range before {
		if _, left := now[key]; !left {
			d.gauge.DeleteLabelValues(key.String())
		}
	}
}
