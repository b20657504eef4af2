package frame

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
)

// ReachWithin is how long a person waits until it is clear that the API server cannot be
// reached. slowAfter is when the person is told that it is slow.
const (
	ReachWithin = 10 * time.Second
	slowAfter   = 5 * time.Second
)

// Reach asks the API server once whether it answers to this account, before anything is done. Its
// error is one message with one action, whose command asks the same cluster. The server also says
// who the user is, if it can: the result is "" if it cannot. What takes long is told on out.
func (p Place) Reach(ctx context.Context, cfg *rest.Config, out io.Writer) (user string, err error) {
	asked := ctx
	ctx, cancel := context.WithTimeoutCause(asked, ReachWithin, errNoAnswer)
	defer cancel()
	slow := time.AfterFunc(slowAfter, func() {
		fmt.Fprintf(out, "the API server has not answered for %s; still waiting\n", Duration(slowAfter))
	})
	defer slow.Stop()
	problem := p.unreachable(ctx, cfg)
	if asked.Err() != nil {
		return "", context.Cause(asked) // a signal
	}
	if problem != "" {
		return "", fmt.Errorf("cannot reach the API server %s: %s", cfg.Host, problem)
	}
	return k8sutil.WhoAmI(ctx, cfg), nil
}

var errNoAnswer = fmt.Errorf("no answer within %s", Duration(ReachWithin))

// Commands that show where the fault is.
const (
	showConfig   = "kubectl config view --minify"
	showContexts = "kubectl config get-contexts"
	showCluster  = "kubectl cluster-info"
)

// next ends a message with what to do, and with the command that shows more, if there is one.
func (p Place) next(problem, action, command string) string {
	text := problem + ". Next: " + action
	if command == "" {
		return text
	}
	return text + ": " + Complete(command, "", "", p.flags())
}

// flags are those that were given.
func (p Place) flags() []Flag {
	given := []Flag{{"kubeconfig", p.Kubeconfig}, {"context", p.Context}}
	return slices.DeleteFunc(given, func(f Flag) bool { return f.Value == "" })
}

// unreachable says why the server cannot be used, and what to do; "" if it answers.
func (p Place) unreachable(ctx context.Context, cfg *rest.Config) string {
	client, err := rest.HTTPClientFor(rest.CopyConfig(cfg))
	if err != nil {
		return p.next(err.Error(), "Correct the kubeconfig", showConfig)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return p.next(err.Error(), "Correct the server in the kubeconfig", showConfig)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("version").String(), nil)
	if err != nil {
		return p.next(err.Error(), "Correct the server in the kubeconfig", showConfig)
	}
	res, err := client.Do(req)
	if err != nil {
		return p.action(context.Cause(ctx), err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16)) // the connection can be used again
	_ = res.Body.Close()
	if res.StatusCode == http.StatusUnauthorized {
		return p.next("Unauthorized", "Log in again, or use another --context", showContexts)
	}
	// Every other answer is an answer. What this account may do, the jobs find out.
	return ""
}

// action names the kind of a failed connection, and what to do.
func (p Place) action(cause, err error) string {
	if cause != nil {
		return p.next(cause.Error(), "Check the VPN and the proxy, then", showCluster)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	text := redact.URLs(err.Error())
	if k8sutil.IsPluginFailure(err) {
		return p.next(text+". The credential plugin of the kubeconfig failed, and the cluster was not asked", "Log in again, or run the command of the plugin to see why", showConfig)
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		return p.next(fmt.Sprintf("no such host %q", name.Name), "Correct the server in the kubeconfig, or check the VPN", showConfig)
	}
	if expired, ok := errors.AsType[x509.CertificateInvalidError](err); ok && expired.Reason == x509.Expired {
		return p.next(text, "Get a new kubeconfig", "")
	}
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	if verification || authority || name || record {
		return p.next(text, "Check the server and its certificate authority in the kubeconfig", showConfig)
	}
	return p.next(text, "Check that the cluster runs", showCluster)
}
