package eventservice

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/post"
)

const (
	dialTimeout = 2 * time.Second
	// idleConnection is how long a connection to the adapter is kept unused.
	idleConnection = 90 * time.Second
)

// Poster posts events: to the adapter of an Application, or to the Broker of the mesh.
type Poster struct {
	timeout   time.Duration
	userAgent []string
	// transport and not a client: a POST that is redirected becomes a GET, and the
	// event is gone.
	transport http.RoundTripper
}

// NewPoster returns a Poster that waits for an answer until timeout is over. connections to one
// host are kept open.
func NewPoster(userAgent string, timeout time.Duration, connections int) *Poster {
	return &Poster{timeout: timeout, userAgent: []string{userAgent}, transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: min(dialTimeout, timeout), KeepAlive: 15 * time.Second}).DialContext,
		MaxIdleConns:        connections,
		MaxIdleConnsPerHost: connections,
		// Each admitted event gets a connection: the bound is before this one.
		MaxConnsPerHost:    0,
		IdleConnTimeout:    idleConnection,
		DisableCompression: true,
		ReadBufferSize:     4 << 10,
		WriteBufferSize:    4 << 10,
	}}
}

// Post is post.Event, within the time of this Poster.
func (p *Poster) Post(ctx context.Context, to *url.URL, header http.Header, data []byte) (status int, answer http.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	header["User-Agent"] = p.userAgent
	return post.Event(ctx, p.transport, to, header, data)
}
