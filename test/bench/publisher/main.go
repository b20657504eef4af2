// Command publisher is the baseline for the publisher of eventing: a minimal handler that calls
// PublishMsg with the body and the attributes, unchecked, and answers. The benchmark divides by its
// figures, because both store the same messages.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

func main() {
	url := flag.String("url", "", "of NATS")
	subject := flag.String("subject", "", "of every event")
	seedFile := flag.String("seed-file", "", "the seed of the user")
	caFile := flag.String("ca-file", "", "the authority of the server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *url, *subject, *seedFile, *caFile)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "publisher:", err)
		os.Exit(1)
	}
}

// run tells its address on stdout, and ends with ctx.
func run(ctx context.Context, url, subject, seedFile, caFile string) error {
	seed, err := os.ReadFile(seedFile)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return err
	}
	conn, err := natsutil.Connect(url, natsutil.Account{Name: "bare", Seed: seed, CA: ca, Inbox: "_INBOX.publisher"})
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			header := nats.Header{jetstream.MsgIDHeader: r.Header["Ce-Id"], "content-type": r.Header["Content-Type"]}
			for name, values := range r.Header {
				if strings.HasPrefix(name, "Ce-") {
					header[strings.ToLower(name)] = values
				}
			}
			_, err = js.PublishMsg(r.Context(), &nats.Msg{Subject: subject, Data: body, Header: header})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
