// Package sinks plays the sinks of Subscriptions: one HTTP server for all of them, and the DNS
// server that knows their names.
package sinks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// Request is one request to a sink.
type Request struct {
	// ID is the header Ce-Id.
	ID, Method, URI, Host, Body string
	Header                      http.Header
	At                          time.Time
}

// Sinks is one server for all sinks: the first label of the host says which. A sink answers 200
// unless the test says otherwise.
type Sinks struct {
	// DNS is <host>:<port> of the server that knows the sinks.
	DNS string

	server   *httptest.Server
	mu       sync.Mutex
	received map[string][]Request
	handlers map[string]http.HandlerFunc
	// unkept are those whose requests are not remembered.
	unkept map[string]bool
	silent atomic.Bool // DNS is
}

// Start starts both servers. They end with the test.
func Start(t testing.TB) *Sinks {
	t.Helper()
	s := &Sinks{received: map[string][]Request{}, handlers: map[string]http.HandlerFunc{}, unkept: map[string]bool{}}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.server.Close)
	address, stop, err := serveDNS(&s.silent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	s.DNS = address
	return s
}

// SilenceDNS has the DNS server answer nothing, or answer again.
func (s *Sinks) SilenceDNS(is bool) { s.silent.Store(is) }

// URL is what a Subscription has as its sink.
func (s *Sinks) URL(name, namespace string) string {
	_, port, _ := net.SplitHostPort(s.server.Listener.Addr().String())
	return fmt.Sprintf("http://%s.%s.svc.cluster.local:%s/events?a=b", name, namespace, port)
}

// Answer sets how a sink answers. nil is 200.
func (s *Sinks) Answer(name string, with http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[name] = with
}

// Forget remembers no requests of a sink: for more of them than memory holds.
func (s *Sinks) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unkept[name] = true
}

func (s *Sinks) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	name, _, _ := strings.Cut(r.Host, ".")
	s.mu.Lock()
	if !s.unkept[name] {
		s.received[name] = append(s.received[name], Request{r.Header.Get("Ce-Id"), r.Method, r.RequestURI, r.Host, string(body), r.Header, time.Now()})
	}
	handler := s.handlers[name]
	s.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	if handler != nil {
		handler(w, r)
	}
}

// Of are the requests that a sink has got, the first one first.
func (s *Sinks) Of(name string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received[name])
}

// IDs are those of the events that a sink has got, with repetitions.
func (s *Sinks) IDs(name string) (ids []string) {
	for _, r := range s.Of(name) {
		ids = append(ids, r.ID)
	}
	return ids
}

// Await waits until a sink has got each of these events.
func (s *Sinks) Await(t testing.TB, name string, within time.Duration, ids ...string) {
	t.Helper()
	poll.Until(t, within, "sink "+name+" has all events", func(context.Context) error {
		have := map[string]bool{}
		for _, id := range s.IDs(name) {
			have[id] = true
		}
		missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return have[id] })
		if len(missing) > 0 {
			return fmt.Errorf("%d of %d are missing, %s among them", len(missing), len(ids), missing[0])
		}
		return nil
	})
}

// ServeDNS starts a DNS server that knows one address for all names of the cluster, but for those
// that begin with "missing.".
func ServeDNS() (address string, stop func(), err error) { return serveDNS(new(atomic.Bool)) }

func serveDNS(silent *atomic.Bool) (address string, stop func(), err error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("cannot start a DNS server: %w", err)
	}
	go func() {
		for buffer := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if answer, err := answerDNS(buffer[:n]); err == nil && !silent.Load() {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return conn.LocalAddr().String(), func() { _ = conn.Close() }, nil
}

func answerDNS(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	m.Header.Response, m.Header.Authoritative, m.Additionals = true, true, nil
	q := m.Questions[0]
	switch name := q.Name.String(); {
	case !strings.HasSuffix(name, ".svc.cluster.local.") || strings.HasPrefix(name, "missing."):
		m.Header.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
		}}
	}
	return m.Pack()
}
