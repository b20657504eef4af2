// Command workload is what runs in the pods of end-to-end tests: one program, so that one image
// does for all of them.
//
//	workload api            asks the API server with the pod's own token, at its ClusterIP, and prints what it is
//	workload crash WORDS    writes the words to stderr and fails
//	workload serve ADDRESS  answers every request with 200; the pod's readiness probe decides when it counts. What follows
//	                        is for people who read the arguments of a pod.
//	workload relay URL      listens at :8080, or at the address that follows, and hands every request on to the URL, answering what that answers
//	workload nats URL       publishes an event and consumes it again, with the seeds of the environment variables PUBLISHER and
//	                        CONTROLLER and the authority of CA, and shows that nobody else may
//	workload hang           ignores SIGTERM, as a program that does not want to end
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: workload api | crash WORDS | serve ADDRESS | relay URL | nats URL | hang")
	}
	switch rest := args[1:]; {
	case args[0] == "api":
		return api()
	case args[0] == "crash":
		return errors.New(strings.Join(rest, " "))
	case args[0] == "serve" && len(rest) > 0:
		return serve(ctx, rest[0], http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	case args[0] == "relay" && (len(rest) == 1 || len(rest) == 2):
		address := append(rest, ":8080")[1]
		target, err := url.Parse(rest[0])
		if err != nil {
			return err
		}
		return serve(ctx, address, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	case args[0] == "nats" && len(rest) == 1:
		return throughNATS(ctx, rest[0])
	case args[0] == "hang":
		signal.Ignore(syscall.SIGTERM)
		select {}
	}
	return fmt.Errorf("unknown arguments %q", args)
}

// api proves what a Job of the migration relies on: its token, the CA, the ClusterIP, and names.
func api() error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	config.Host = "https://kubernetes.default.svc"
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("cannot ask the API server at %s: %w", config.Host, err)
	}
	fmt.Println(version.GitVersion)
	return nil
}

func serve(ctx context.Context, address string, handler http.Handler) error {
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
