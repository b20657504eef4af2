package faultproxy

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Cut passes bytes on between clients and a server that is no API server, such as NATS, until
// clients have sent a certain piece of data.
type Cut struct {
	// Address is localhost:<port>.
	Address string

	to       string
	stops    func(n int64, size int) bool
	sent     atomic.Int64
	listener net.Listener
	held     chan struct{} // a piece of data is
	released chan struct{}
	ended    chan struct{}
	once     struct{ held, released, ended sync.Once }
	mu       sync.Mutex
	open     []net.Conn
}

// StartCut starts one in front of an address. The n-th piece of data that clients send is not
// passed on, nor what follows: connections stay up and silent. With 0, everything is passed on.
func StartCut(to string, n int64) (*Cut, error) {
	return StartCutAt(to, func(sent int64, _ int) bool { return n > 0 && sent >= n })
}

// StartCutAt is like StartCut. stops says of each piece of data, by its number from 1 and its size
// in bytes, whether it is not passed on, nor what follows on its connection. It may be called by
// several connections at a time.
func StartCutAt(to string, stops func(n int64, size int) bool) (*Cut, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, err
	}
	c := &Cut{
		Address: "localhost:" + port, to: to, stops: stops, listener: l,
		held: make(chan struct{}), released: make(chan struct{}), ended: make(chan struct{}),
	}
	go c.accept()
	return c, nil
}

// Sent is the number of pieces that clients have sent.
func (c *Cut) Sent() int64 { return c.sent.Load() }

// Held is closed when a piece is not passed on.
func (c *Cut) Held() <-chan struct{} { return c.held }

// Release passes on, late, what was not, and everything from then on.
func (c *Cut) Release() { c.once.released.Do(func() { close(c.released) }) }

func (c *Cut) accept() {
	for {
		from, err := c.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", c.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		c.mu.Lock()
		c.open = append(c.open, from, to)
		c.mu.Unlock()
		go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
		go c.pass(from, to)
	}
}

func (c *Cut) pass(from, to net.Conn) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		read, err := from.Read(buffer)
		if err != nil {
			return
		}
		if c.stops(c.sent.Add(1), read) {
			c.once.held.Do(func() { close(c.held) })
			select {
			case <-c.released:
			case <-c.ended: // until then, it stays up and silent
				return
			}
		}
		if _, err := to.Write(buffer[:read]); err != nil {
			return
		}
	}
}

// Close ends all connections.
func (c *Cut) Close() {
	_ = c.listener.Close()
	c.once.ended.Do(func() { close(c.ended) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
}
