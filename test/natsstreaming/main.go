// Command natsstreaming is NATS Streaming, in which Kyma's Event Bus stores events, for tests: the
// real server and, since its client is as archived as it is, a client that works for anyone who
// calls it over HTTP.
//
//	go -C test/natsstreaming run . [--cluster ID] [--host ADDRESS]
//
// One line of JSON on stdout means that it works: {"monitoring": URL, "client": URL}. The
// monitoring port listens at the host, all else on loopback. It ends with the end of stdin, so that
// a parent that dies takes it down. The client has:
//
//	POST   /CHANNEL                                        store the body as an event; the answer means that it is stored
//	PUT    /CHANNEL/DURABLE?to=URL&wait=1s&inflight=64     subscribe: each event is posted to the URL, again if that does not answer 2xx
//	DELETE /CHANNEL/DURABLE                                end the subscription, and with ?keep=true leave the durable one to come back to
//
// This directory is a module of its own, so that NATS Streaming and the old NATS server that it is
// made of stay out of the product's: docs/decisions/0001-libraries.md.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	natsd "github.com/nats-io/nats-streaming-server/server"
	"github.com/nats-io/stan.go"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "natsstreaming:", err)
		os.Exit(1)
	}
}

func run(args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("natsstreaming", flag.ContinueOnError)
	cluster := flags.String("cluster", "knative-nats-streaming", "the ID of the cluster, as its clients name it")
	host := flags.String("host", "127.0.0.1", "where the monitoring port listens")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o, n := natsd.GetDefaultOptions(), natsd.DefaultNatsServerOptions
	o.ID = *cluster
	// The server does not tell which port it chose for monitoring.
	free, err := net.Listen("tcp", net.JoinHostPort(*host, "0"))
	if err != nil {
		return err
	}
	n.Host, n.Port, n.HTTPHost, n.HTTPPort = "127.0.0.1", -1, *host, free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		return err
	}
	server, err := natsd.RunServerWithOpts(o, &n)
	if err != nil {
		return fmt.Errorf("cannot start NATS Streaming: %w", err)
	}
	defer server.Shutdown()
	conn, err := stan.Connect(*cluster, "knative-dispatcher", stan.NatsURL(server.ClientURL()), stan.ConnectWait(time.Minute))
	if err != nil {
		return fmt.Errorf("cannot connect to NATS Streaming: %w", err)
	}
	defer func() { _ = conn.Close() }()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c := &client{
		ctx: ctx, conn: conn, subscriptions: map[[2]string]stan.Subscription{},
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second}},
	}
	front := &http.Server{Handler: c.handler()}
	served := make(chan error, 1)
	go func() { served <- front.Serve(l) }()
	defer func() { _ = front.Close() }()

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, stdin)
	}()
	if err := json.NewEncoder(stdout).Encode(map[string]string{
		"monitoring": "http://" + net.JoinHostPort(*host, strconv.Itoa(n.HTTPPort)), "client": "http://" + l.Addr().String(),
	}); err != nil {
		return err
	}
	select {
	case <-ended:
		return nil
	case err := <-served:
		return err
	}
}

// client is one connection to the server.
type client struct {
	ctx  context.Context
	conn stan.Conn
	http *http.Client

	mu            sync.Mutex
	subscriptions map[[2]string]stan.Subscription // by channel and durable name
}

func (c *client) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]func(*http.Request) error{
		"POST /{channel}":             c.publish,
		"PUT /{channel}/{durable}":    c.subscribe,
		"DELETE /{channel}/{durable}": c.unsubscribe,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := handle(r); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		})
	}
	return mux
}

func (c *client) publish(r *http.Request) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	// It returns when the server has stored the event.
	return c.conn.Publish(r.PathValue("channel"), data)
}

func (c *client) subscribe(r *http.Request) error {
	to := r.URL.Query().Get("to")
	wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
	if err != nil {
		return err
	}
	inFlight, err := strconv.Atoi(r.URL.Query().Get("inflight"))
	if err != nil {
		return err
	}
	sub, err := c.conn.Subscribe(r.PathValue("channel"), func(m *stan.Msg) {
		if c.deliver(to, m.Data) {
			_ = m.Ack()
		} // or else it comes again
	}, stan.DurableName(r.PathValue("durable")), stan.SetManualAckMode(), stan.AckWait(wait), stan.MaxInflight(inFlight))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscriptions[[2]string{r.PathValue("channel"), r.PathValue("durable")}] = sub
	return nil
}

func (c *client) unsubscribe(r *http.Request) error {
	key := [2]string{r.PathValue("channel"), r.PathValue("durable")}
	c.mu.Lock()
	sub := c.subscriptions[key]
	delete(c.subscriptions, key)
	c.mu.Unlock()
	switch {
	case sub == nil:
		return errors.New("there is no such subscription")
	case r.URL.Query().Get("keep") == "true":
		return sub.Close()
	}
	return sub.Unsubscribe()
}

// deliver says whether the subscriber has taken an event.
func (c *client) deliver(to string, data []byte) bool {
	req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, to, bytes.NewReader(data))
	if err != nil {
		return false
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode/100 == 2
}
