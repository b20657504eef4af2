package eventservice

import (
	"bufio"
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

// connections is a listener with a bounded number of connections.
//
// At the limit a new client is served at the cost of who does nothing: the
// connection that is idle for longest is closed, else the one that takes longest to
// send its request. One whose request is being answered is never closed. If there are
// only such, the new client waits, as it would with a server without a limit, for
// acceptPatience; then it, and who comes until there is room again, is answered with
// 503. As long as one waits, answers tell clients to close their connections, so that
// they take turns.
//
// A connection is closed by making its reads fail: what it has sent already is read
// and answered, and its goroutine closes it. So no request is lost whose client was
// quicker than we. A connection that has sent nothing yet gives its place away, and has
// refuseTimeout to send its request, which is answered with 503: its client may be slow
// because its machine is.
type connections struct {
	net.Listener
	limit   int
	metrics *metrics // nil: not counted

	refusers  chan struct{}
	lingering chan struct{}
	writing   sync.WaitGroup // refusers, and those that linger
	freed     chan struct{}  // a connection has closed
	accepted  atomic.Int64
	mu        sync.Mutex
	open      int
	wanted    atomic.Bool // a client waits for a place
	leaving   int         // asked to close, and still open
	lastTold  time.Time   // when one was asked to
	fullSince time.Time   // zero: there was room when the last client came
	ended     bool
	idle      list.List // of *conn, the one idle for longest first
	reading   list.List // of *conn, before the first request or in the middle of a header
	sending   list.List // of *conn, in the middle of a body
}

const (
	// slowHeader and slowBody are how long a client has for each before another one that
	// has no place gets its own. Who has sent something that we have not read is never
	// slow: we are. Both are short, since they are also the pace at which many new
	// clients, some of them slow, are let in.
	slowHeader = 250 * time.Millisecond
	slowBody   = 500 * time.Millisecond
	// largeBody is the same as slowBody where memory is scarce, and not places.
	largeBody = time.Second
	// restful is how long a connection is idle before its place is another's. A client
	// that sends one request after the other is about to use it.
	restful = 250 * time.Millisecond
	// lateRequest is the time for a request that came when its connection was about to
	// be closed.
	lateRequest = 5 * time.Second
	// acceptPatience is how long a client waits for a place before it gets a 503.
	acceptPatience = 2 * time.Second
	// leaveTime is the wait for a connection that was asked to close, before
	// another one is asked, too.
	leaveTime = 20 * time.Millisecond
	// maxRefusers are answered with 503 at once.
	maxRefusers = 64
	// refuseTimeout bounds one refusal: the reading of the request, and its answer.
	refuseTimeout = 2 * time.Second
	// maxLingering connections, for lingerTime each, are read from after their last
	// answer: a client that cannot write any more may not read it. Among them are those
	// that lost their place before their first request, for refuseTimeout.
	maxLingering = 256
	lingerTime   = 3 * time.Second
	// discardLimit is what is read of a client that was refused.
	discardLimit = 64 << 10
)

func limitConnections(l net.Listener, limit int, m *metrics) *connections {
	return &connections{
		Listener: l, limit: limit, metrics: m, refusers: make(chan struct{}, maxRefusers), lingering: make(chan struct{}, maxLingering), freed: make(chan struct{}, 1),
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
		l.writing.Go(func() {
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
		l.wanted.Store(false)
		l.open++
		l.accepted.Add(1)
		c := &conn{Conn: raw, of: l}
		c.isIdle.Store(true)
		c.isNew.Store(true)
		c.wait(&l.reading, now)
		return c, 0
	}
	l.wanted.Store(true)
	if l.leaving > 0 && now.Sub(l.lastTold) < leaveTime {
		return nil, leaveTime
	}
	told, wait := l.makeRoom(now)
	if told {
		l.fullSince = time.Time{}
		return nil, leaveTime
	}
	if l.fullSince.IsZero() {
		l.fullSince = now
	}
	if wait < acceptPatience {
		return nil, wait // some place is another's soon
	}
	return nil, l.fullSince.Add(acceptPatience).Sub(now)
}

// makeRoom tells one connection to close, or says when it is worth another try.
func (l *connections) makeRoom(now time.Time) (told bool, wait time.Duration) {
	// Not all of them are asked at once, because no client is accepted meanwhile.
	for range mostAsked {
		c, wait := l.dispensable(now)
		switch {
		case c == nil:
			return false, wait
		case c.unread():
			c.later(now)
			continue
		}
		l.tell(c)
		return true, 0
	}
	return false, time.Millisecond
}

// dispensable returns the connection that is closed next, or how long it is until
// there may be one.
func (l *connections) dispensable(now time.Time) (*conn, time.Duration) {
	wait := acceptPatience
	for _, queue := range []struct {
		of    *list.List
		after time.Duration
	}{{&l.idle, restful}, {&l.reading, slowHeader}, {&l.sending, slowBody}} {
		if e := queue.of.Front(); e != nil {
			c := e.Value.(*conn)
			left := queue.after - now.Sub(c.since)
			if left <= 0 {
				return c, 0
			}
			wait = min(wait, left)
		}
	}
	return nil, wait
}

// mostAsked connections are asked whether they have sent something.
const mostAsked = 128

// freeBody tells the connection to close that takes longest to send a body, so that
// there is memory for others. It returns false if none takes long.
func (l *connections) freeBody() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for range mostAsked {
		e := l.sending.Front()
		if e == nil {
			return false
		}
		c := e.Value.(*conn)
		if now.Sub(c.since) < largeBody {
			return false
		}
		if c.unread() {
			c.later(now)
			continue
		}
		l.tell(c)
		return true
	}
	return false
}

// tell makes a connection close once it has answered what it has read.
func (l *connections) tell(c *conn) {
	c.wait(nil, time.Time{})
	if c.told.Swap(true) {
		return
	}
	l.leaving++
	l.lastTold = time.Now()
	if l.metrics != nil && !l.ended {
		l.metrics.closed.Inc()
	}
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
}

func (l *connections) setIdle(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.isIdle.Store(true)
	c.isNew.Store(false)
	if c.told.Load() {
		return
	}
	c.wait(&l.idle, time.Now())
	if l.ended {
		l.tell(c)
	}
}

// drain waits until every connection has closed: idle ones are asked to, the
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
	written := make(chan struct{})
	go func() {
		l.writing.Wait()
		close(written)
	}()
	select {
	case <-written:
		return nil
	case <-ctx.Done():
		return errors.New("some clients have not read their answers")
	}
}

// conn is one connection of a client.
type conn struct {
	net.Conn
	of     *connections
	closed sync.Once
	// isIdle: nothing of the next request has come. isNew: no request has been answered.
	// told: it closes soon. half: the last answer is written, the request is not read.
	isIdle, isNew, told, half atomic.Bool

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

// later puts a connection of whose client something has come behind the others.
func (c *conn) later(now time.Time) {
	if c.queue == &c.of.sending {
		c.wait(c.queue, now)
		return
	}
	c.wait(&c.of.reading, now)
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 && c.isIdle.Load() && c.told.Load() && errors.Is(err, os.ErrDeadlineExceeded) && c.unread() {
		// Closing it now would lose a request.
		_ = c.Conn.SetReadDeadline(time.Now().Add(lateRequest))
		n, err = c.Conn.Read(p)
	}
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

// SetReadDeadline implements net.Conn. net/http must not continue a connection that
// was asked to close.
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
	return c.told.Load() || c.of.wanted.Load()
}

// receive says that a body is read from now on.
func (c *conn) receive() {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.queue != nil {
		c.wait(&c.of.sending, time.Now())
	}
}

// leave says that the request is answered without being read to its end.
func (c *conn) leave() {
	if c != nil {
		c.half.Store(true)
	}
}

// freeBody is that of all connections.
func (c *conn) freeBody() bool { return c != nil && c.of.freeBody() }

// mustGo says whether the connection was asked to close.
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
	var err error
	c.closed.Do(func() {
		err = c.close()
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

// close closes the connection, or leaves that to a goroutine which reads from it first.
func (c *conn) close() error {
	late := c.told.Load() && c.isNew.Load() && c.isIdle.Load()
	if !late && !c.half.Load() {
		return c.Conn.Close()
	}
	select {
	case c.of.lingering <- struct{}{}:
	default:
		return c.Conn.Close()
	}
	c.of.writing.Go(func() {
		defer func() { <-c.of.lingering }()
		if late {
			refuse(c.Conn)
			return
		}
		defer c.Conn.Close()
		_ = closeWrite(c.Conn)
		_ = c.Conn.SetDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerLimit)
	})
	return nil
}

// lingerLimit is what is read from one connection after its last answer.
const lingerLimit = 1 << 20

// CloseWrite lets net/http half-close, as it does for a bare TCP connection after
// an answer to a request it has not read to its end.
func (c *conn) CloseWrite() error {
	c.half.Store(true)
	return closeWrite(c.Conn)
}

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

var refusal = func() []byte {
	const body = `{"status":503,"type":"` + legacy.TypeOverloaded + `","message":"Too many connections at once","moreInfo":"` + legacy.NotTaken + `"}` + "\n"
	return []byte("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) +
		"\r\nRetry-After: " + strconv.Itoa(int(legacy.RetryAfter/time.Second)) + "\r\nConnection: close\r\n\r\n" + body)
}()

// refuse answers a connection that there is no place for. Its request is awaited
// first: a client takes an answer that comes before it for the end of an idle
// connection. Then it waits for the client to close: closing with unread bytes would
// reset the answer away.
func refuse(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(refuseTimeout))
	req, err := http.ReadRequest(bufio.NewReader(io.LimitReader(c, lingerLimit)))
	if err != nil {
		return // it has sent nothing, or is gone
	}
	_, _ = io.Copy(io.Discard, req.Body)
	if _, err := c.Write(refusal); err != nil {
		return
	}
	_ = closeWrite(c)
	_, _ = io.CopyN(io.Discard, c, discardLimit)
}
