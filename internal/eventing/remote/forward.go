// Package remote connects to pods of eventing from outside the cluster, through a port-forward of
// the API server: to the API of the controller for dead letters, and to the publisher.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// forwardWithin is how long a port-forward may take to be ready.
const forwardWithin = 20 * time.Second

// Forward opens a port of a pod on this machine, until the context ends. The address is
// 127.0.0.1:<port>. Its errors name the permission that is missing.
func Forward(ctx context.Context, cfg *rest.Config, namespace, pod string, port int) (address string, err error) {
	dialer, err := dialerOf(cfg, namespace, pod)
	if err != nil {
		return "", err
	}
	ready, failed := make(chan struct{}), make(chan error, 1)
	f, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{"0:" + strconv.Itoa(port)}, ready, io.Discard, io.Discard)
	if err != nil {
		return "", fmt.Errorf("cannot forward port %d of Pod %s/%s: %w", port, namespace, pod, err)
	}
	go func() { failed <- f.ForwardPorts() }()
	limit := time.NewTimer(forwardWithin)
	defer limit.Stop()
	select {
	case <-ready:
	case err := <-failed:
		return "", explained(namespace, pod, port, err)
	case <-limit.C:
		return "", fmt.Errorf("cannot forward port %d of Pod %s/%s: no connection within %s", port, namespace, pod, forwardWithin)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	ports, err := f.GetPorts()
	if err != nil || len(ports) == 0 {
		return "", fmt.Errorf("cannot forward port %d of Pod %s/%s: %w", port, namespace, pod, err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), nil
}

// dialerOf uses WebSockets, and SPDY where a proxy or an old server knows none, as kubectl does.
func dialerOf(cfg *rest.Config, namespace, pod string) (httpstream.Dialer, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	at := base.JoinPath("api/v1/namespaces", namespace, "pods", pod, "portforward")
	transport, upgrader, err := spdy.RoundTripperFor(cfg)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, cfg)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(tunnel, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// explained says what to do about a port-forward that was refused.
func explained(namespace, pod string, port int, err error) error {
	if err == nil {
		err = errors.New("the connection has ended")
	}
	what := fmt.Sprintf("cannot forward port %d of Pod %s/%s: %s", port, namespace, pod, redact.URLs(err.Error()))
	if strings.Contains(err.Error(), "forbidden") { // an upgrade that is refused has no type
		return fmt.Errorf("%s. To see the permission that is missing: %s", what,
			wording.CommandLine("kubectl", "auth", "can-i", "create", "pods", "--subresource=portforward", "--namespace="+namespace))
	}
	return errors.New(what)
}
