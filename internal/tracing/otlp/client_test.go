package otlp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// settings of HTTP/2, as the port for gRPC of OpenTelemetry's Collector sends them.
const settings = "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00@\x00"

// TestPortOfGRPC: a collector's port for gRPC sends settings of HTTP/2 to each connection, before
// the request or after it. It is not asked again, and somebody is told which port it is.
func TestPortOfGRPC(t *testing.T) {
	for name, before := range map[string]bool{"before the request": true, "after the request": false} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var asked atomic.Int32
			ended, sent := make(chan struct{}), make(chan struct{}, 10)
			go func() {
				defer close(ended)
				for {
					c, err := listener.Accept()
					if err != nil {
						return
					}
					asked.Add(1)
					if before {
						_, _ = c.Write([]byte(settings))
						sent <- struct{}{}
					}
					// What is not read when it is closed would reset the connection.
					if q, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						_, _ = io.Copy(io.Discard, q.Body)
					}
					if !before {
						_, _ = c.Write([]byte(settings))
					}
					_ = c.Close()
				}
			}()
			defer func() {
				_ = listener.Close()
				<-ended
			}()
			ctx := t.Context()
			if before {
				ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
					<-sent
					time.Sleep(50 * time.Millisecond) // until the connection's reader has seen them
				}})
			}
			var lost []error
			c := newClient("http://"+listener.Addr().String(), func(err error) { lost = append(lost, err) })
			if err := c.UploadTraces(ctx, nil); err != nil {
				t.Error(err)
			}
			if len(lost) != 1 || !strings.Contains(lost[0].Error(), "4318") || asked.Load() != 1 {
				t.Errorf("asked %d times, and spans were lost for %v", asked.Load(), lost)
			}
		})
	}
}
