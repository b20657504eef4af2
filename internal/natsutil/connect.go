package natsutil

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Account is how a program connects.
type Account struct {
	// Name of the program, for the servers' logs.
	Name string
	// Seed of the user. It is secret.
	Seed []byte
	// CA is the authority of the servers' certificates, in PEM.
	CA []byte
	// Inbox begins the subjects of answers. A user may subscribe to no other ones, so that no user
	// sees another one's answers.
	Inbox string
}

// A server whose node has lost its power, or its network, closes no connection. Nobody would notice
// for four to six minutes, which is the client's default: publishing would fail, and nothing would
// be delivered, although other servers go on.
const (
	// pingInterval and maxPings: a server is given up that has not answered for 6 to 8 seconds. It
	// is not shorter: a pod that gets little of a processor is late, and a connection that is given
	// up for nothing costs deliveries.
	pingInterval = 2 * time.Second
	maxPings     = 3
	// flushLimit is for one write, of 1 MiB at most. While it waits, no ping is sent.
	flushLimit = 5 * time.Second
)

// Connect returns a connection that reconnects for ever, also if no server is there yet. What is
// published while it is disconnected is an error at once, and is not sent later. Close it.
func Connect(url string, a Account, more ...nats.Option) (*nats.Conn, error) {
	public, err := PublicKey(a.Seed)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.CA) {
		return nil, errors.New("there is no certificate of an authority")
	}
	options := append([]nats.Option{
		nats.Name(a.Name),
		nats.Nkey(public, func(nonce []byte) ([]byte, error) {
			key, err := nkeys.FromSeed(a.Seed)
			if err != nil {
				return nil, errors.New("cannot sign with the seed of a NATS user")
			}
			defer key.Wipe()
			return key.Sign(nonce)
		}),
		nats.Secure(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}),
		nats.CustomInboxPrefix(a.Inbox),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		nats.FlusherTimeout(flushLimit),
	}, more...)
	c, err := nats.Connect(url, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to NATS at %s: %w", url, err)
	}
	return c, nil
}

// reconnectDelay is how long to wait before a try to connect again, the first of which is 1. The
// client knows one address, that of a Service: with several servers, the others answer there at
// once when one of them ends. It would wait for a second before the first try.
func reconnectDelay(try int) time.Duration {
	jitter := rand.N(200 * time.Millisecond)
	if try <= 1 {
		return jitter
	}
	return time.Second + jitter
}
