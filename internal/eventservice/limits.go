package eventservice

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// bodies reads request bodies into memory that is bounded over all of them. A
// body takes what has arrived of it, not what was announced: a hundred clients
// that send a byte a second take little.
type bodies struct {
	limit int64 // of one body
	room  int64 // of all
	taken atomic.Int64
}

// steps are the sizes a buffer grows through; the last is the limit and one byte,
// by which a body that is too large is told from one that just fits.
func (b *bodies) steps() []int64 {
	var steps []int64
	for size := int64(4 << 10); size < b.limit+1; size *= 4 {
		steps = append(steps, size)
	}
	return append(steps, b.limit+1)
}

// body is one request's, released when it is answered.
type body struct {
	of    *bodies
	size  int64
	bytes []byte
}

func (b *body) release() {
	b.of.taken.Add(-b.size)
	b.size, b.bytes = 0, nil
}

// grow gives the body room for size bytes.
func (b *body) grow(size int64) bool {
	if b.of.taken.Add(size-b.size) > b.of.room {
		b.of.taken.Add(b.size - size)
		return false
	}
	grown := make([]byte, len(b.bytes), size)
	copy(grown, b.bytes)
	b.bytes, b.size = grown, size
	return true
}

// read reads a whole body. The error is one for the client.
func (b *bodies) read(r *http.Request) (*body, *apiError) {
	out := &body{of: b}
	for _, size := range b.steps() {
		if !out.grow(size) {
			out.release()
			return nil, overloaded()
		}
		for int64(len(out.bytes)) < size {
			n, err := r.Body.Read(out.bytes[len(out.bytes):size])
			out.bytes = out.bytes[:len(out.bytes)+n]
			switch {
			case int64(len(out.bytes)) > b.limit:
				out.release()
				return nil, tooLarge()
			case errors.Is(err, io.EOF):
				return out, nil
			case errors.Is(err, os.ErrDeadlineExceeded):
				out.release()
				return nil, bodyTimeout()
			case err != nil:
				out.release()
				return nil, badPayload(err.Error())
			}
		}
	}
	out.release()
	return nil, tooLarge()
}

// limitedListener accepts a bounded number of connections. Those beyond it get an
// answer, too: whoever waits in the kernel's queue does not know why, nor when to
// come again, and a health probe behind them would fail.
type limitedListener struct {
	net.Listener
	slots   chan struct{}
	refuser chan struct{}
	shed    func()
}

// refusers are under way at once; what is beyond them is closed.
const refusers = 64

func limitConnections(l net.Listener, limit int, shed func()) net.Listener {
	return &limitedListener{Listener: l, slots: make(chan struct{}, limit), refuser: make(chan struct{}, refusers), shed: shed}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &limitedConn{Conn: conn, release: func() { <-l.slots }}, nil
		default:
		}
		l.shed()
		select {
		case l.refuser <- struct{}{}:
			go func() {
				defer func() { <-l.refuser }()
				refuse(conn)
			}()
		default:
			_ = conn.Close()
		}
	}
}

var refusal = func() []byte {
	const body = `{"status":503,"type":"` + typeOverloaded + `","message":"Too many connections at once"}` + "\n"
	return []byte("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) +
		"\r\nRetry-After: " + strconv.Itoa(int(retryAfter/time.Second)) + "\r\nConnection: close\r\n\r\n" + body)
}()

// refuse answers a connection without reading its request first, then waits for
// the client to close: closing with unread bytes would reset the answer away.
func refuse(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write(refusal); err != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, conn, discardLimit)
}

type limitedConn struct {
	net.Conn
	once    sync.Once
	release func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.release)
	return err
}

// CloseWrite lets net/http half-close, as it does for a bare TCP connection after
// an answer to a request it has not read to its end.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
