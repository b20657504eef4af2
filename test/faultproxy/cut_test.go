package faultproxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
)

// TestCut: what is sent before the n-th piece passes, and is answered. From the n-th on, the connection is up and silent.
func TestCut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	for _, n := range []int64{0, 3} {
		c, err := faultproxy.StartCut(l.Addr().String(), n)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", c.Address)
		if err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 1)
		for piece := int64(1); piece <= 4; piece++ {
			if _, err := conn.Write([]byte{byte(piece)}); err != nil {
				t.Fatal(err)
			}
			if passes := n == 0 || piece < n; !passes {
				_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				if _, err := conn.Read(answer); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("cut at %d: piece %d is answered with %d, %v", n, piece, answer, err)
				}
			} else if _, err := io.ReadFull(conn, answer); err != nil || answer[0] != byte(piece) || c.Sent() != piece {
				t.Errorf("cut at %d: piece %d of %d is answered with %d, %v", n, piece, c.Sent(), answer, err)
			}
		}
		c.Close()
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Read(answer); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("cut at %d: the connection did not end with the cut: %v", n, err)
		}
		_ = conn.Close()
	}
}
