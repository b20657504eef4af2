// Package connection holds the single connection of a controller to NATS, and replaces it when the
// address or the credentials change.
package connection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

const (
	natsUser = "controller"
	// Timeout is how long NATS may take to answer.
	Timeout = 5 * time.Second
)

// ErrNoNATS says that there is no connection now.
var ErrNoNATS = errors.New("NATS cannot be reached")

// Options are of a Connection. All are required.
type Options struct {
	// SeedFile and CAFile are the seed of the user of NATS, and the CA of its servers.
	SeedFile, CAFile string
	// Up is called when the connection is there, again or for the first time.
	Up func()
	// Made is called with each new connection, and with nil when there is none any more.
	Made func(*nats.Conn)
}

// Connection is the one connection to NATS. It is replaced only when the address or the credentials
// have changed. Its methods can be called at the same time.
type Connection struct {
	options Options

	mu       sync.Mutex
	url      string
	seed, ca []byte
	conn     *nats.Conn
	js       jetstream.JetStream
	// connects counts how often the connection was made. What was found out in an earlier one may
	// not hold any more.
	connects int
}

// New returns a Connection that is not open.
func New(o Options) *Connection { return &Connection{options: o} }

// Over returns a Connection over one of nats.go. It is not replaced.
func Over(conn *nats.Conn) (*Connection, error) {
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(Timeout))
	return &Connection{conn: conn, js: js}, err
}

// Use connects to an address, in the background. The files are read each time: the Secrets behind
// them may have changed.
func (c *Connection) Use(to *backend.NATSAddress) error {
	seed, err := os.ReadFile(c.options.SeedFile)
	if err != nil {
		return fmt.Errorf("cannot read the seed of the NATS user: %w", err)
	}
	ca, err := os.ReadFile(c.options.CAFile)
	if err != nil {
		return fmt.Errorf("cannot read the authority of NATS: %w", err)
	}
	seed = bytes.TrimSpace(seed)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.url == to.URL && bytes.Equal(c.seed, seed) && bytes.Equal(c.ca, ca) {
		return nil
	}
	up := func(*nats.Conn) {
		c.mu.Lock()
		c.connects++
		c.mu.Unlock()
		c.options.Up()
	}
	conn, err := natsutil.Connect(to.URL, natsutil.Account{Name: "eventing-controller", Seed: seed, CA: ca, Inbox: "_INBOX." + natsUser},
		nats.ConnectHandler(up), nats.ReconnectHandler(up),
		// The server may refuse us because the Secrets have changed.
		nats.ReconnectErrHandler(func(*nats.Conn, error) { go c.refresh() }))
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(Timeout))
	if err != nil {
		conn.Close()
		return err
	}
	old := c.conn
	c.url, c.seed, c.ca, c.conn, c.js = to.URL, seed, ca, conn, js
	c.options.Made(conn)
	if old != nil {
		go c.end(old)
	}
	return nil
}

// refresh reads the files again while the connection is not there.
func (c *Connection) refresh() {
	c.mu.Lock()
	url := c.url
	c.mu.Unlock()
	if url != "" {
		_ = c.Use(&backend.NATSAddress{URL: url}) // a file that cannot be read now is read at the next try
	}
}

// JetStream is what NATS is asked with. The number says which connection it is. ErrNoNATS if there
// is none.
func (c *Connection) JetStream() (jetstream.JetStream, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || !c.conn.IsConnected() {
		return nil, c.connects, ErrNoNATS
	}
	return c.js, c.connects, nil
}

// Connected tells whether NATS can be asked now.
func (c *Connection) Connected() bool {
	_, _, err := c.JetStream()
	return err == nil
}

// Stream is when the stream was created, and its settings. The number says which connection
// answered. ErrNoNATS if nobody answered.
func (c *Connection) Stream(ctx context.Context) (created time.Time, config jetstream.StreamConfig, connects int, err error) {
	js, connects, err := c.JetStream()
	if err != nil {
		return created, config, connects, err
	}
	s, err := js.Stream(ctx, backend.Stream)
	if err != nil {
		return created, config, connects, Unanswered(err)
	}
	return s.CachedInfo().Created, s.CachedInfo().Config, connects, nil
}

// Unanswered makes an error ErrNoNATS, too, if NATS gave no answer.
func Unanswered(err error) error {
	for _, none := range []error{nats.ErrTimeout, context.DeadlineExceeded, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrConnectionReconnecting, jetstream.ErrJetStreamNotEnabled} {
		if errors.Is(err, none) {
			return fmt.Errorf("%w: %w", ErrNoNATS, err)
		}
	}
	return err
}

// Close ends the connection when what was published has been sent.
func (c *Connection) Close() {
	c.mu.Lock()
	conn := c.conn
	c.conn, c.js, c.url = nil, nil, ""
	c.mu.Unlock()
	c.options.Made(nil)
	if conn != nil {
		c.end(conn)
	}
}

func (*Connection) end(conn *nats.Conn) {
	_ = conn.FlushTimeout(Timeout) // nothing is lost without it: NATS sends again what it was told nothing about
	conn.Close()
}
