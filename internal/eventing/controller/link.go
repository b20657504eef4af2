package controller

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
	// natsTimeout is how long NATS may take to answer.
	natsTimeout = 5 * time.Second
)

// errNoNATS says that there is no connection now.
var errNoNATS = errors.New("NATS cannot be reached")

// link is the one connection to NATS. It is replaced only when the address or the credentials have
// changed.
type link struct {
	seedFile, caFile string
	// up is called when the connection is there, again or for the first time.
	up func()

	mu       sync.Mutex
	url      string
	seed, ca []byte
	conn     *nats.Conn
	js       jetstream.JetStream
	// connects counts how often the connection was made. What was found out in an earlier one may
	// not hold any more.
	connects int
}

// use connects to an address, in the background. The files are read each time: the Secrets behind
// them may have changed.
func (l *link) use(to *backend.NATSAddress) error {
	seed, err := os.ReadFile(l.seedFile)
	if err != nil {
		return fmt.Errorf("cannot read the seed of the NATS user: %w", err)
	}
	ca, err := os.ReadFile(l.caFile)
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
		l.up()
	}
	conn, err := natsutil.Connect(to.URL, natsutil.Account{Name: "eventing-controller", Seed: seed, CA: ca, Inbox: "_INBOX." + natsUser},
		nats.ConnectHandler(up), nats.ReconnectHandler(up),
		// The server may refuse us because the Secrets have changed.
		nats.ReconnectErrHandler(func(*nats.Conn, error) { go l.refresh() }))
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(natsTimeout))
	if err != nil {
		conn.Close()
		return err
	}
	old := l.conn
	l.url, l.seed, l.ca, l.conn, l.js = to.URL, seed, ca, conn, js
	if old != nil {
		go l.end(old)
	}
	return nil
}

// refresh reads the files again while the connection is not there.
func (l *link) refresh() {
	l.mu.Lock()
	url := l.url
	l.mu.Unlock()
	if url != "" {
		_ = l.use(&backend.NATSAddress{URL: url}) // a file that cannot be read now is read at the next try
	}
}

// jetStream is what NATS is asked with. The number says which connection it is. errNoNATS if there
// is none.
func (l *link) jetStream() (jetstream.JetStream, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || !l.conn.IsConnected() {
		return nil, l.connects, errNoNATS
	}
	return l.js, l.connects, nil
}

// connected tells whether NATS can be asked now.
func (l *link) connected() bool {
	_, _, err := l.jetStream()
	return err == nil
}

// created is when the stream was created. The number says which connection answered. errNoNATS if
// nobody answered.
func (l *link) created(ctx context.Context) (time.Time, int, error) {
	js, connects, err := l.jetStream()
	if err != nil {
		return time.Time{}, connects, err
	}
	s, err := js.Stream(ctx, backend.Stream)
	if err != nil {
		return time.Time{}, connects, unanswered(err)
	}
	return s.CachedInfo().Created, connects, nil
}

// unanswered makes an error errNoNATS, too, if NATS gave no answer.
func unanswered(err error) error {
	for _, none := range []error{nats.ErrTimeout, context.DeadlineExceeded, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrConnectionReconnecting, jetstream.ErrJetStreamNotEnabled} {
		if errors.Is(err, none) {
			return fmt.Errorf("%w: %w", errNoNATS, err)
		}
	}
	return err
}

// close ends the connection when what was published has been sent.
func (l *link) close() {
	l.mu.Lock()
	conn := l.conn
	l.conn, l.js, l.url = nil, nil, ""
	l.mu.Unlock()
	if conn != nil {
		l.end(conn)
	}
}

func (*link) end(conn *nats.Conn) {
	_ = conn.FlushTimeout(natsTimeout) // nothing is lost without it: NATS sends again what it was told nothing about
	conn.Close()
}
