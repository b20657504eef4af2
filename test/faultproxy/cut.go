package faultproxy

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Cut passes bytes on between clients and a server that is no API server, such as NATS, until clients have sent a number of pieces.
type Cut struct {
	// Address is localhost:<port>.
	Address string

	to       string
	last     int64
	sent     atomic.Int64
	listener net.Listener
	ended    chan struct{}
	once     sync.Once
	mu       sync.Mutex
	open     []net.Conn
}

// StartCut starts one in front of an address. The n-th piece of data that clients send is not passed on, nor what follows: connections stay
// up and silent. With 0, everything is passed on.
func StartCut(to string, n int64) (*Cut, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, err
	}
	c := &Cut{Address: "localhost:" + port, to: to, last: n, listener: l, ended: make(chan struct{})}
	go c.accept()
	return c, nil
}

// Sent is the number of pieces that clients have sent.
func (c *Cut) Sent() int64 { return c.sent.Load() }

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
		if sent := c.sent.Add(1); c.last > 0 && sent >= c.last {
			<-c.ended // it stays up and silent until the client is dead
			return
		}
		if _, err := to.Write(buffer[:read]); err != nil {
			return
		}
	}
}

// Close ends all connections.
func (c *Cut) Close() {
	_ = c.listener.Close()
	c.once.Do(func() { close(c.ended) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
}
