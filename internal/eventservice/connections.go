package eventservice

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// connections is a listener with a bounded number of connections.
//
// At the limit a new client is served at the cost of who does nothing: the
// connection that is idle for longest is closed, else the one that has sent nothing
// for longest in the middle of a request. One whose request is being answered is
// never closed. If there are only such, the new client waits, as it would with a
// server without a limit, for acceptPatience; then it, and who comes until there is
// room again, is answered with 503.
//
// A connection is closed by making its reads fail: what it has sent already is read
// and answered, and its goroutine closes it. So no request is lost whose client was
// quicker than we.
type connections struct {
	net.Listener
	limit   int
	metrics *metrics // nil: not counted

	refusers  chan struct{}
	refusing  sync.WaitGroup
	freed     chan struct{} // a connection has closed
	accepted  atomic.Int64
	mu        sync.Mutex
	open      int
	leaving   int       // told to close, and still open
	lastTold  time.Time // when one was told so
	fullSince time.Time // zero: there was room when somebody last came
	ended     bool
	idle      list.List // of *conn, the one idle for longest first
	reading   list.List // of *conn, in the middle of a request or before the first one
}

const (
	// silence is how long a client may send nothing in the middle of a request before
	// another one gets its place. Whoever sends is never silent, however slow we are.
	silence = 500 * time.Millisecond
	// acceptPatience is how long a client waits for a place before it gets a 503.
	acceptPatience = 2 * time.Second
	// leaveTime is how long a connection that is told to close is waited for before
	// another one is told so, too.
	leaveTime = 20 * time.Millisecond
	// refusers are answered with 503 at once.
	maxRefusers = 64
	// refuseTimeout bounds one refusal: the reading of the request, and its answer.
	refuseTimeout = time.Second
)

func limitConnections(l net.Listener, limit int, m *metrics) *connections {
	return &connections{
		Listener: l, limit: limit, metrics: m, refusers: make(chan struct{}, maxRefusers), freed: make(chan struct{}, 1),
	}
}

// configure makes srv tell about its connections.
func (l *connections) configure(srv *http.Server) {
	srv.ConnState = func(c net.Conn, state http.ConnState) {
		if c, ok := c.(*conn); ok && state == http.StateIdle {
			l.setIdle(c)
		}
	}
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
}

type connKey struct{}

// connOf returns the connection of a request, nil in tests without one.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(raw); c != nil {
			return c, nil
		}
		if l.metrics != nil {
			l.metrics.connections.Inc()
		}
		// Beyond this many, clients wait in the kernel's queue rather than see an end of
		// file without an answer.
		l.refusers <- struct{}{}
		l.refusing.Go(func() {
			defer func() { <-l.refusers }()
			refuse(raw)
		})
	}
}

// admit returns nil if there is no place.
func (l *connections) admit(raw net.Conn) *conn {
	var timer *time.Timer
	for {
		c, wait := l.tryAdmit(raw)
		if c != nil || wait <= 0 {
			return c
		}
		if timer == nil {
			timer = time.NewTimer(wait)
			defer timer.Stop()
		} else {
			timer.Reset(wait)
		}
		select {
		case <-l.freed:
		case <-timer.C:
		}
	}
}

// tryAdmit admits a connection, or says how long to wait for a place.
func (l *connections) tryAdmit(raw net.Conn) (*conn, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.open < l.limit {
		l.fullSince = time.Time{}
		l.open++
		l.accepted.Add(1)
		c := &conn{Conn: raw, of: l}
		c.wait(&l.reading, now)
		return c, 0
	}
	if l.fullSince.IsZero() {
		l.fullSince = now
	}
	wait := l.fullSince.Add(acceptPatience).Sub(now)
	if l.leaving > 0 && now.Sub(l.lastTold) < leaveTime {
		return nil, min(wait, leaveTime)
	}
	return nil, min(wait, l.makeRoom(now))
}

// makeRoom tells one connection to close, and returns when to try again.
func (l *connections) makeRoom(now time.Time) time.Duration {
	// Clients that have just sent something are put at the end of the queue. Not all of
	// them are asked in one go, for nobody is accepted meanwhile.
	const most = 128
	for range most {
		c, where := first(&l.idle), &l.idle
		if c == nil {
			c, where = first(&l.reading), &l.reading
		}
		if c == nil {
			return acceptPatience
		}
		if left := silence - now.Sub(c.since); where == &l.reading && left > 0 {
			return left
		}
		if c.unread() {
			c.wait(&l.reading, now)
			continue
		}
		l.tell(c)
		l.lastTold = now
		if l.metrics != nil {
			l.metrics.closed.Inc()
		}
		return leaveTime
	}
	return time.Millisecond
}

func first(l *list.List) *conn {
	if e := l.Front(); e != nil {
		return e.Value.(*conn)
	}
	return nil
}

// tell makes a connection close once it has answered what it has read.
func (l *connections) tell(c *conn) {
	c.wait(nil, time.Time{})
	c.told.Store(true)
	l.leaving++
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
}

func (l *connections) setIdle(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.wait(&l.idle, time.Now())
	c.isIdle.Store(true)
	if l.ended {
		l.tell(c)
	}
}

// drain waits until every connection has closed: those that are idle are told to, the
// others when they have their answer. The listener must be closed, so that no more
// come.
func (l *connections) drain(ctx context.Context) error {
	l.mu.Lock()
	l.ended = true
	for e := l.idle.Front(); e != nil; {
		c := e.Value.(*conn)
		e = e.Next()
		if !c.unread() {
			l.tell(c)
		}
	}
	l.mu.Unlock()
	refused := make(chan struct{})
	go func() {
		l.refusing.Wait()
		close(refused)
	}()
	for {
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		if open == 0 {
			break
		}
		select {
		case <-l.freed:
		case <-ctx.Done():
			return errors.New(strconv.Itoa(open) + " connections are still open")
		}
	}
	select {
	case <-refused:
		return nil
	case <-ctx.Done():
		return errors.New("clients are still being refused")
	}
}

// conn is one connection of a client.
type conn struct {
	net.Conn
	of     *connections
	closed sync.Once
	// isIdle: nothing of the next request has come. told: it closes soon.
	isIdle, told atomic.Bool

	// Under of.mu: the queue that it waits in, and since when; nil while its request is
	// being answered.
	queue *list.List
	place *list.Element
	since time.Time
}

// wait puts the connection at the end of a queue, nil: of none.
func (c *conn) wait(queue *list.List, now time.Time) {
	if c.queue != nil && c.queue == queue {
		queue.MoveToBack(c.place)
	} else {
		if c.queue != nil {
			c.queue.Remove(c.place)
		}
		if c.queue, c.place = queue, nil; queue != nil {
			c.place = queue.PushBack(c)
		}
	}
	c.since = now
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.isIdle.Load() {
		c.isIdle.Store(false)
		c.of.mu.Lock()
		if c.queue != nil {
			c.wait(&c.of.reading, time.Now())
		}
		c.of.mu.Unlock()
	}
	return n, err
}

// SetReadDeadline implements net.Conn. net/http must not let a connection go on that
// was told to close.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.told.Load() {
		return nil
	}
	if err := c.Conn.SetReadDeadline(t); err != nil {
		return err
	}
	if c.told.Load() {
		return c.Conn.SetReadDeadline(time.Unix(1, 0))
	}
	return nil
}

// begin says that a request is read and will be answered: until then, nobody gets
// this connection's place. It returns true if this answer is the last one.
func (c *conn) begin() bool {
	if c == nil {
		return false
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.queue != nil {
		c.wait(nil, time.Time{})
	}
	return c.told.Load()
}

// mustGo says whether the connection was told to close.
func (c *conn) mustGo() bool { return c != nil && c.told.Load() }

// unread says whether the client has sent what nobody has read yet: it is we who are
// slow.
func (c *conn) unread() bool {
	inner, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := inner.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) {
		var one [1]byte
		n, _, _ = unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return n > 0
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() {
		l := c.of
		l.mu.Lock()
		c.wait(nil, time.Time{})
		l.open--
		if c.told.Load() {
			l.leaving--
		}
		l.mu.Unlock()
		select {
		case l.freed <- struct{}{}:
		default:
		}
	})
	return err
}

// CloseWrite lets net/http half-close, as it does for a bare TCP connection after
// an answer to a request it has not read to its end.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

var refusal = func() []byte {
	const body = `{"status":503,"type":"` + typeOverloaded + `","message":"Too many connections at once","moreInfo":"` + notTaken + `"}` + "\n"
	return []byte("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) +
		"\r\nRetry-After: " + strconv.Itoa(int(retryAfter/time.Second)) + "\r\nConnection: close\r\n\r\n" + body)
}()

// refuse answers a connection that there is no place for. Its request is awaited
// first: a client takes an answer that comes before it for the end of an idle
// connection. Then it waits for the client to close: closing with unread bytes would
// reset the answer away.
func refuse(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(refuseTimeout))
	var begin [512]byte
	if _, err := c.Read(begin[:]); err != nil {
		return // it has sent nothing, or is gone
	}
	if _, err := c.Write(refusal); err != nil {
		return
	}
	_ = closeWrite(c)
	_, _ = io.CopyN(io.Discard, c, discardLimit)
}
