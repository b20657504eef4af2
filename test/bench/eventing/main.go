// Command eventing is the baseline for eventing-controller: a loop that pulls events from consumers
// of NATS, posts them to one URL, ten at a time for each consumer, and acknowledges them. It checks
// and retries nothing, and runs until it is killed. The benchmark of test/integration/eventing
// starts it.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

func main() {
	url := flag.String("url", "", "`URL` of NATS")
	seed := flag.String("seed", "", "`file` with the seed of the user")
	ca := flag.String("ca", "", "`file` with the authority of the server")
	sink := flag.String("sink", "", "`URL` that gets all events")
	consumers := flag.String("consumers", "", "`names` of the consumers, with commas")
	flag.Parse()
	// It runs until it is killed.
	fmt.Fprintln(os.Stderr, "eventing:", run(*url, *seed, *ca, *sink, strings.Split(*consumers, ",")))
	os.Exit(1)
}

const inFlight = 10

func run(url, seedFile, caFile, sink string, consumers []string) error {
	seed, err := os.ReadFile(seedFile)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return err
	}
	conn, err := natsutil.Connect(url, natsutil.Account{Name: "bare", Seed: seed, CA: ca, Inbox: "_INBOX.controller"})
	if err != nil {
		return err
	}
	j, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx := context.Background()
	to, err := neturl.Parse(sink)
	if err != nil {
		return err
	}
	// Each Subscription has a sink of its own, and so connections of its own, as for the
	// controller.
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inFlight, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, to.Host)
	}}}
	for _, name := range consumers {
		consumer, err := j.Consumer(ctx, backend.Stream, name)
		if err != nil {
			return err
		}
		slots, own := make(chan struct{}, inFlight), "http://"+name+".sink/"
		_, err = consumer.Consume(func(m jetstream.Msg) {
			slots <- struct{}{}
			go func() {
				defer func() { <-slots }()
				if post(client, own, m) == nil {
					_ = m.DoubleAck(ctx)
				}
			}()
		}, jetstream.PullMaxMessages(inFlight))
		if err != nil {
			return err
		}
	}
	select {}
}

func post(client *http.Client, sink string, m jetstream.Msg) error {
	request, err := http.NewRequest(http.MethodPost, sink, bytes.NewReader(m.Data()))
	if err != nil {
		return err
	}
	for name, values := range m.Headers() {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
