package publisher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

// natsTransport is the connection to NATS. It is replaced when the address, the seed or the
// authorities change, and at no other time: nats.go reconnects by itself. While the new connection
// is not there yet, the former one serves.
type natsTransport struct {
	seedFile, caFile string
	log              *zap.Logger
	// current is what events are sent through; nil before the first one.
	current atomic.Pointer[connection]

	mu      sync.Mutex
	address backend.NATSAddress // "": there is none
	next    *connection         // is being opened, and replaces the current one
}

type connection struct {
	to   target
	conn *nats.Conn
	js   jetstream.JetStream
}

// target is what a connection is opened with.
type target struct {
	url, stream string
	seed, ca    []byte
}

func (t target) equal(other target) bool {
	return t.url == other.url && t.stream == other.stream && bytes.Equal(t.seed, other.seed) && bytes.Equal(t.ca, other.ca)
}

func newNATS(seedFile, caFile string, log *zap.Logger) *natsTransport {
	return &natsTransport{seedFile: seedFile, caFile: caFile, log: log}
}

// send implements transport.
func (n *natsTransport) send(ctx context.Context, e *cloudevent.Event, from http.Header, requestID string) *legacy.Problem {
	c := n.current.Load()
	if c == nil {
		return unavailable("The backend cannot be reached", "not_connected")
	}
	ack, err := c.js.PublishMsg(ctx, message(e, from, requestID), jetstream.WithRetryAttempts(0))
	e.Repeated = err == nil && ack.Duplicate
	return answer(err)
}

// ask implements transport. The stream need not exist: that it is missing is an answer of the
// backend, too.
func (n *natsTransport) ask(ctx context.Context) error {
	c := n.current.Load()
	if c == nil {
		return errors.New("there is no connection to NATS yet")
	}
	if _, err := c.js.Stream(ctx, c.to.stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("JetStream does not answer: %w", err)
	}
	return nil
}

// connected implements transport.
func (n *natsTransport) connected() (is, known bool) {
	c := n.current.Load()
	return c != nil && c.conn.IsConnected(), true
}

// follow implements transport: it connects again when the files change, until ctx ends. It watches
// directories: the kubelet replaces a link in them.
func (n *natsTransport) follow(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch the credentials of NATS: %w", err)
	}
	defer watcher.Close()
	for _, file := range []string{n.seedFile, n.caFile} {
		if err := watcher.Add(filepath.Dir(file)); err != nil {
			return fmt.Errorf("cannot watch %s: %w", file, err)
		}
	}
	n.reconnect() // what has changed before the watch began
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.Events:
			n.reconnect()
		case err := <-watcher.Errors:
			n.log.Warn("missed changes of the credentials of NATS, reading them again", zap.Error(err))
			n.reconnect()
		}
	}
}

// use implements transport.
func (n *natsTransport) use(b *backend.Backends) {
	n.mu.Lock()
	n.address = backend.NATSAddress{}
	if b.NATS != nil {
		n.address = *b.NATS
	}
	n.mu.Unlock()
	n.reconnect()
}

// reconnect opens a connection if what it is opened with has changed.
func (n *natsTransport) reconnect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.address.URL == "" {
		n.drop(n.next)
		n.drop(n.current.Swap(nil))
		n.next = nil
		return
	}
	to, err := n.target()
	if err != nil {
		n.log.Error("cannot read the credentials of NATS", zap.Error(err))
		return
	}
	latest := n.next
	if latest == nil {
		latest = n.current.Load()
	}
	if latest != nil && latest.to.equal(to) {
		return
	}
	c, err := n.open(to)
	if err != nil {
		n.log.Error("cannot connect to NATS", zap.Error(err))
		return
	}
	n.drop(n.next)
	n.next = c
	if current := n.current.Load(); current == nil || !current.conn.IsConnected() {
		n.replace()
	}
}

func (n *natsTransport) target() (target, error) {
	seed, err := os.ReadFile(n.seedFile)
	if err != nil {
		return target{}, err
	}
	ca, err := os.ReadFile(n.caFile)
	if err != nil {
		return target{}, err
	}
	seed = bytes.TrimSpace(seed)
	if len(seed) == 0 || len(ca) == 0 {
		return target{}, errors.New("a file is empty")
	}
	return target{url: n.address.URL, stream: n.address.Stream, seed: seed, ca: ca}, nil
}

// open begins to connect.
func (n *natsTransport) open(to target) (*connection, error) {
	log := n.log.With(zap.String("url", to.url))
	c := &connection{to: to}
	var err error
	c.conn, err = natsutil.Connect(to.url, natsutil.Account{Name: "eventing-publisher-proxy", Seed: to.seed, CA: to.ca, Inbox: "_INBOX.publisher"},
		nats.ConnectHandler(func(*nats.Conn) {
			log.Info("connected to NATS")
			n.connects(c)
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			log.Info("connected to NATS again")
			n.connects(c)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("the connection to NATS was lost, reconnecting", zap.Error(err))
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("cannot connect to NATS, retrying", zap.Error(err)) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("NATS reports an error", zap.Error(err)) }),
	)
	if err != nil {
		return nil, err
	}
	if c.js, err = jetstream.New(c.conn); err != nil {
		c.conn.Close()
		return nil, err
	}
	return c, nil
}

// connects is called when a connection is there.
func (n *natsTransport) connects(c *connection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == c {
		n.replace()
	}
}

// replace puts the next connection in the place of the current one.
func (n *natsTransport) replace() {
	n.drop(n.current.Swap(n.next))
	n.next = nil
}

// drop closes a connection when what was published through it has its answer.
func (n *natsTransport) drop(c *connection) {
	if c != nil {
		time.AfterFunc(StoreTimeout+time.Second, c.conn.Close)
	}
}

func (n *natsTransport) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.address = backend.NATSAddress{}
	for _, c := range []*connection{n.next, n.current.Swap(nil)} {
		if c != nil {
			c.conn.Close()
		}
	}
	n.next = nil
}
