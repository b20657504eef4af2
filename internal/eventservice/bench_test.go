package eventservice

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

// cheap is an HTTP server that does as little as can be: what a benchmark measures is
// not it.
func cheap(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReaderSize(conn, 8<<10)
				for {
					length := 0
					for {
						line, err := in.ReadSlice('\n')
						if err != nil {
							return
						}
						if len(line) <= 2 {
							break
						}
						if rest, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
							for _, c := range bytes.TrimSpace(rest) {
								length = 10*length + int(c-'0')
							}
						}
					}
					if _, err := in.Discard(length); err != nil {
						return
					}
					if _, err := conn.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// load sends b.N events over clients connections, and reports the CPU of one. The
// clients and the adapter take the same share of it, whatever is between them: compare
// two benchmarks, and what BenchmarkNothing says of that share.
func load(b *testing.B, address string) {
	b.Helper()
	const clients = 32
	body := `{"event-type":"order.created","event-type-version":"v1","event-id":"31109198-4d69-4ae0-972d-76117f3748c8","event-time":"2020-03-01T12:00:00Z","data":{"order":1,"padding":"` +
		strings.Repeat("x", 850) + `"}}`
	request := fmt.Appendf(nil, "POST /shop/v1/events HTTP/1.1\r\nHost: shop-event-service:8081\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n%s", len(body), body)
	var all sync.WaitGroup
	work := make(chan int, clients)
	for i := range clients {
		n := b.N / clients
		if i < b.N%clients {
			n++
		}
		work <- n
	}
	close(work)
	cpu := func() time.Duration {
		var usage unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_SELF, &usage)
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu()
	for n := range work {
		all.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			in := bufio.NewReaderSize(conn, 4<<10)
			for range n {
				if _, err := conn.Write(request); err != nil {
					b.Error(err)
					return
				}
				length := 0
				for first := true; ; first = false {
					line, err := in.ReadSlice('\n')
					if err != nil || first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
						b.Errorf("%v: %q", err, line)
						return
					}
					if len(line) <= 2 {
						break
					}
					if rest, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
						for _, c := range bytes.TrimSpace(rest) {
							length = 10*length + int(c-'0')
						}
					}
				}
				if _, err := in.Discard(length); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
}

// BenchmarkNothing: clients and adapter alone.
func BenchmarkNothing(b *testing.B) { load(b, cheap(b)) }

// BenchmarkEvent: with the event-service between them.
func BenchmarkEvent(b *testing.B) {
	s, err := New(Options{
		MeshURL: cheap(b), SourceID: "shop", MaxRequestSize: 65536, RequestTimeout: 10 * time.Second, MaxInFlight: 512, MaxConnections: 2048,
	}, zap.NewNop(), zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	load(b, "http://"+l.Addr().String())
	b.StopTimer()
	cancel()
	if err := <-served; err != nil {
		b.Error(err)
	}
}

// BenchmarkProxy: with a bare reverse proxy between them, with a pool of connections
// as large as that of the event-service.
func BenchmarkProxy(b *testing.B) {
	to, err := url.Parse(cheap(b))
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				r.Out.URL.Path = "/"
			},
			Transport: &http.Transport{MaxIdleConns: 512, MaxIdleConnsPerHost: 512, DisableCompression: true},
		},
		ReadHeaderTimeout: time.Minute,
	}
	go srv.Serve(l) //nolint:errcheck // it ends with the benchmark
	b.Cleanup(func() { _ = srv.Close() })
	load(b, "http://"+l.Addr().String())
}

// BenchmarkDecode: the reading and checking of a body, without a network.
func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"event-type":"order.created","event-type-version":"v1","event-id":"31109198-4d69-4ae0-972d-76117f3748c8","event-time":"2020-03-01T12:00:00Z","data":{"order":1,"padding":"` +
		strings.Repeat("x", 850) + `"}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, problem := legacy.DecodeV1(body); problem != nil {
			b.Fatal(problem)
		}
	}
}
