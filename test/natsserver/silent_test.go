package natsserver_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
)

// config is what a connection needs of the chart's configuration.
const config = `
port: 4222
http_port: 8222
tls { cert_file: /etc/nats/tls/tls.crt, key_file: /etc/nats/tls/tls.key, ca_file: /etc/nats/tls/ca.crt }
authorization { users: [ { nkey: %s } ] }
`

// TestSilentServer: a server answers no more, and its connection stays up, as when its node has
// lost its power. The client gives it up, and connects again: there may be other servers.
func TestSilentServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	seed, err := natsutil.NewUser()
	if err != nil {
		t.Fatal(err)
	}
	key, err := natsutil.PublicKey(seed)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := natsutil.NewAuthority("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := authority.Issue([]string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	server := natsserver.Start(t, fmt.Sprintf(config, key), map[string][]byte{"tls.crt": certificate.Certificate, "tls.key": certificate.Key, "ca.crt": authority.Certificate})
	var silent atomic.Bool
	cut, err := faultproxy.StartCutAt(strings.TrimPrefix(server.URL, "tls://"), func(int64, int) bool { return silent.Load() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cut.Close)

	lost, again := make(chan error, 1), make(chan struct{}, 1)
	c, err := natsutil.Connect("tls://"+cut.Address, natsutil.Account{Name: "test", Seed: seed, CA: authority.Certificate, Inbox: "_INBOX.test"},
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { lost <- err }), nats.ReconnectHandler(func(*nats.Conn) { again <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	silent.Store(true)
	began := time.Now()
	select {
	case err := <-lost:
		if !errors.Is(err, nats.ErrStaleConnection) {
			t.Errorf("the connection was lost because of %v", err)
		}
		t.Logf("given up after %s", time.Since(began))
	case <-time.After(9 * time.Second):
		t.Fatal("the client still waits for a server that answers nothing")
	}
	silent.Store(false)
	select {
	case <-again:
	case <-time.After(10 * time.Second):
		t.Fatal("the client does not connect again")
	}
}
