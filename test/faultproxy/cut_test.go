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

// echo is the address of a server that answers with what it is sent.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	return l.Addr().String()
}

// TestCutReleased: a piece that was held is passed on late, and what follows after it.
func TestCutReleased(t *testing.T) {
	c, err := faultproxy.StartCutAt(echo(t), func(_ int64, size int) bool { return size > 4 })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn, err := net.Dial("tcp", c.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func(piece, want string, wait time.Duration) error {
		if _, err := conn.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		answer := make([]byte, len(want))
		_, err := io.ReadFull(conn, answer)
		if err == nil && string(answer) != want {
			t.Errorf("%q is answered with %q, want %q", piece, answer, want)
		}
		return err
	}
	if err := ask("tiny", "tiny", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Held():
		t.Error("a piece is held that is not selected")
	default:
	}
	if err := ask("large", "large", 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("what is held is answered: %v", err)
	}
	select {
	case <-c.Held():
	case <-time.After(10 * time.Second):
		t.Error("nothing says that a piece is held")
	}
	c.Release()
	if err := ask("after", "largeafter", 10*time.Second); err != nil {
		t.Error(err)
	}
}

// TestCut: what is sent before the n-th piece passes, and is answered. From the n-th on, the
// connection is up and silent.
func TestCut(t *testing.T) {
	server := echo(t)
	for _, n := range []int64{0, 3} {
		c, err := faultproxy.StartCut(server, n)
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
