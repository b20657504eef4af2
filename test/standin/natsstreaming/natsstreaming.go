// Package natsstreaming starts NATS Streaming, the real server, which is the module
// test/natsstreaming, and is a client of it.
package natsstreaming

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// Server is a running NATS Streaming.
type Server struct {
	// MonitoringURL is that of its monitoring port.
	MonitoringURL string

	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer

	client string
	http   *http.Client
	// deliveries is where the server posts events to.
	deliveries *httptest.Server

	mu   sync.Mutex
	subs map[string]func(data []byte) error // by path
}

// Start starts it, and builds it before, which takes half a minute once. host is where its
// monitoring port listens, "" means loopback. It ends with Stop, or with this process.
func Start(ctx context.Context, host string) (*Server, error) {
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	binary, err := kubernetes.Program{
		Dir: filepath.Join(root, "test", "natsstreaming"), Package: ".", Flags: []string{"-trimpath"}, Env: []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off"},
	}.Build(ctx)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cmd:  exec.Command(binary, "--host", host),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second}},
		subs: map[string]func([]byte) error{},
	}
	s.cmd.Stderr = &s.stderr
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("cannot start NATS Streaming: %w", err)
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start NATS Streaming: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start NATS Streaming: %w", err)
	}
	s.deliveries = httptest.NewServer(http.HandlerFunc(s.delivered))
	// When ctx ends it has to, also while it starts.
	defer context.AfterFunc(ctx, func() {
		_ = s.stdin.Close()
		_ = s.cmd.Process.Kill()
	})()
	var said struct{ Monitoring, Client string }
	if err := json.NewDecoder(stdout).Decode(&said); err != nil {
		s.Stop()
		return nil, fmt.Errorf("cannot start NATS Streaming: %w\n%s", err, &s.stderr)
	}
	s.MonitoringURL, s.client = said.Monitoring, said.Client
	return s, nil
}

// Stop ends it, and returns when it has ended.
func (s *Server) Stop() {
	_ = s.stdin.Close()
	_ = s.cmd.Wait()
	s.http.CloseIdleConnections()
	s.deliveries.Close()
}

// Publish returns when the server has stored the event.
func (s *Server) Publish(channel string, data []byte) error {
	return s.call(http.MethodPost, "/"+url.PathEscape(channel), data)
}

// Subscription is a durable one.
type Subscription struct {
	server *Server
	path   string
}

// Subscribe makes a durable subscription, or comes back to one. deliver gets the events one by one,
// and each again, a time of wait later, for which it returned an error; no more than inFlight of
// those are underway.
func (s *Server) Subscribe(channel, durable string, wait time.Duration, inFlight int, deliver func(data []byte) error) (*Subscription, error) {
	path := "/" + url.PathEscape(channel) + "/" + url.PathEscape(durable)
	s.mu.Lock()
	s.subs[path] = deliver
	s.mu.Unlock()
	query := url.Values{"to": {s.deliveries.URL + path}, "wait": {wait.String()}, "inflight": {strconv.Itoa(inFlight)}}
	if err := s.call(http.MethodPut, path+"?"+query.Encode(), nil); err != nil {
		return nil, err
	}
	return &Subscription{server: s, path: path}, nil
}

// Unsubscribe ends it, with all that is undelivered.
func (s *Subscription) Unsubscribe() error {
	return s.server.call(http.MethodDelete, s.path, nil)
}

// Close is what a dispatcher does that goes away: the server keeps the events until it comes back.
func (s *Subscription) Close() error {
	return s.server.call(http.MethodDelete, s.path+"?keep=true", nil)
}

func (s *Server) delivered(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	deliver := s.subs[r.URL.EscapedPath()]
	s.mu.Unlock()
	data, err := io.ReadAll(r.Body)
	if err == nil {
		err = deliver(data)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// call returns when the server has done it; only its end ends it earlier.
func (s *Server) call(method, path string, body []byte) error {
	req, err := http.NewRequest(method, s.client+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusNoContent {
		err = fmt.Errorf("NATS Streaming: %s", strings.TrimSpace(string(answer)))
	}
	return err
}
