package delivery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/refusal"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/retry"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/tally"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/post"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/internal/tracing"
)

const (
	dialTimeout = 5 * time.Second
	// idleConnections to one sink are kept, and for how long. A Budget bounds those to all sinks:
	// with a number for all of them, 1,000 Subscriptions opened one for each second event.
	idleConnections = 100
	idleConnection  = 90 * time.Second
)

var userAgent = []string{"eventing-controller"}

// Sender posts events to sinks, as the event-service does to its adapter.
type Sender struct {
	// transport and not a client: a client follows a redirect, which leads to where no rule was
	// checked.
	transport *http.Transport
	opened    atomic.Int64
	// Tracer makes spans; nil: none.
	Tracer *tracing.Tracer
}

// connection is one that is counted until it is closed.
type connection struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.closed()
	return c.Conn.Close()
}

func (s *Sender) Open() int64 { return s.opened.Load() }

func (s *Sender) CloseIdle() { s.transport.CloseIdleConnections() }

// NewSender returns a Sender. dnsServer is the host:port of the DNS server that knows the sinks; ""
// is that of the system.
func NewSender(dnsServer string) *Sender {
	resolver := &net.Resolver{}
	if dnsServer != "" {
		resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, dnsServer)
		}}
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second, Resolver: resolver, Control: notLinkLocal}
	s := &Sender{}
	s.transport = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			if strings.HasSuffix(host, "."+clusterDomain) {
				host += "." // the name is complete: the resolver need not try the search domains of the pod
			}
			c, err := dialer.DialContext(ctx, network, net.JoinHostPort(host, port))
			if err != nil {
				return nil, err
			}
			s.opened.Add(1)
			return &connection{c, sync.OnceFunc(func() { s.opened.Add(-1) })}, nil
		},
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: idleConnections,
		IdleConnTimeout:     idleConnection,
		DisableCompression:  true,
	}
	return s
}

// notLinkLocal refuses addresses such as 169.254.169.254, where clouds give credentials to pods. A
// Service of type ExternalName leads to any name, and its name to any address.
func notLinkLocal(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast() {
		return fmt.Errorf("%s is not the address of a Service", host)
	}
	return nil
}

// codeError is the code of an outcome without an answer.
const codeError = tally.NoAnswer

// outcome is what came of posting an event once.
type outcome struct {
	// code is the status of the answer, as text; codeError without an answer.
	code string
	// problem says why the event was not taken; "" if it was. It has no part of the event or of the
	// answer.
	problem string
	// unreachable: no event would have been taken.
	unreachable bool
	// after is how long the sink wants not to be asked.
	after time.Duration
}

func (o outcome) taken() bool { return o.problem == "" }

// refused is what the log has of an event that was not taken.
func refused(of types.NamespacedName, header http.Header, o outcome) refusal.Refusal {
	return refusal.Refusal{Subscription: of, ID: health.ShortID(header.Get("Ce-Id")), Type: header.Get("Ce-Type"), Answer: o.code, Problem: o.problem}
}

// send posts an event once, and waits for an answer until limit is over. The header is the caller's
// again when send returns.
func (s *Sender) send(ctx context.Context, limit time.Duration, to *url.URL, header http.Header, data []byte) outcome {
	// The header of the caller does not change: the next try comes behind the same span.
	header, span := s.Tracer.Begin(header, tracing.Posts, "deliver event", time.Now(), tracing.Event{ID: header.Get("Ce-Id"), Type: header.Get("Ce-Type"), Source: header.Get("Ce-Source")})
	o := s.post(ctx, limit, to, header, data)
	if span.Made() {
		span.Note("url.full", redact.URL(to.String()))
		span.Answer(o.code)
	}
	span.End(o.problem)
	return o
}

func (s *Sender) post(ctx context.Context, limit time.Duration, to *url.URL, header http.Header, data []byte) outcome {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	header["User-Agent"] = userAgent
	status, answer, err := post.Event(ctx, s.transport, to, header, data)
	if err != nil {
		kind := post.Unreachable
		if failed, ok := errors.AsType[*post.Error](err); ok {
			kind = failed.Kind
		}
		return outcome{code: codeError, problem: reasons[kind], unreachable: !kind.Reached()}
	}
	o := outcome{code: strconv.Itoa(status)}
	if status < 200 || status > 299 {
		o.problem = "the sink answers " + o.code
		o.after = retry.After(answer, time.Now())
	}
	return o
}

// reasons are short texts for people, the same each time: they are in a status, which is written
// when it changes.
var reasons = map[post.Kind]string{
	post.NoAnswer:    "the sink does not answer in time",
	post.Closed:      "the sink closes connections without an answer",
	post.UnknownHost: "the host of the sink is not known: create the Service",
	post.Unresolved:  "the host of the sink cannot be resolved",
	post.Refused:     "the sink refuses connections",
	post.SlowConnect: "a connection to the sink takes too long",
	post.Unreachable: "the sink cannot be reached",
}
