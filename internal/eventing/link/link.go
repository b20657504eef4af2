// Package link holds the single connection of a controller to NATS, and replaces it when the
// address or the credentials change.
package link

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

// Options are of a Link. All are required.
type Options struct {
	// SeedFile and CAFile are the seed of the user of NATS, and the CA of its servers.
	SeedFile, CAFile string
	// Up is called when the connection is there, again or for the first time.
	Up func()
	// Made is called with each new connection, and with nil when there is none any more.
	Made func(*nats.Conn)
}

// Link is the one connection to NATS. It is replaced only when the address or the credentials have
// changed. Its methods can be called at the same time.
type Link struct {
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

// New returns a Link without a connection.
func New(o Options) *Link { return &Link{options: o} }

// Over returns a Link over a connection that is there. It is not replaced.
func Over(conn *nats.Conn) (*Link, error) {
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(Timeout))
	return &Link{conn: conn, js: js}, err
}

// Use connects to an address, in the background. The files are read each time: the Secrets behind
// them may have changed.
func (l *Link) Use(to *backend.NATSAddress) error {
	seed, err := os.ReadFile(l.options.SeedFile)
	if err != nil {
		return fmt.Errorf("cannot read the seed of the NATS user: %w", err)
	}
	ca, err := os.ReadFile(l.options.CAFile)
	if err != nil {
		return fmt.Errorf("cannot read the authority of NATS: %w", err)
	}
	seed = bytes.TrimSpace(seed)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && l.url == to.URL && bytes.Equal(l.seed, seed) && bytes.Equal(l.ca, ca) {
		return nil
	}
	up := func(*nats.Conn) {
		l.mu.Lock()
		l.connects++
		l.mu.Unlock()
		l.options.Up()
	}
	conn, err := natsutil.Connect(to.URL, natsutil.Account{Name: "eventing-controller", Seed: seed, CA: ca, Inbox: "_INBOX." + natsUser},
		nats.ConnectHandler(up), nats.ReconnectHandler(up),
		// The server may refuse us because the Secrets have changed.
		nats.ReconnectErrHandler(func(*nats.Conn, error) { go l.refresh() }))
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(Timeout))
	if err != nil {
		conn.Close()
		return err
	}
	old := l.conn
	l.url, l.seed, l.ca, l.conn, l.js = to.URL, seed, ca, conn, js
	l.options.Made(conn)
	if old != nil {
		go l.end(old)
	}
	return nil
}

// refresh reads the files again while the connection is not there.
func (l *Link) refresh() {
	l.mu.Lock()
	url := l.url
	l.mu.Unlock()
	if url != "" {
		_ = l.Use(&backend.NATSAddress{URL: url}) // a file that cannot be read now is read at the next try
	}
}

// JetStream is what NATS is asked with. The number says which connection it is. ErrNoNATS if there
// is none.
func (l *Link) JetStream() (jetstream.JetStream, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || !l.conn.IsConnected() {
		return nil, l.connects, ErrNoNATS
	}
	return l.js, l.connects, nil
}

// Connected tells whether NATS can be asked now.
func (l *Link) Connected() bool {
	_, _, err := l.JetStream()
	return err == nil
}

// Stream is when the stream was created, and its settings. The number says which connection
// answered. ErrNoNATS if nobody answered.
func (l *Link) Stream(ctx context.Context) (created time.Time, config jetstream.StreamConfig, connects int, err error) {
	js, connects, err := l.JetStream()
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
func (l *Link) Close() {
	l.mu.Lock()
	conn := l.conn
	l.conn, l.js, l.url = nil, nil, ""
	l.mu.Unlock()
	l.options.Made(nil)
	if conn != nil {
		l.end(conn)
	}
}

func (*Link) end(conn *nats.Conn) {
	_ = conn.FlushTimeout(Timeout) // nothing is lost without it: NATS sends again what it was told nothing about
	conn.Close()
}
