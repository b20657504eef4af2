package eventservice_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// ask sends one request on a connection, and reads its answer.
func ask(conn net.Conn, method, path, body string) (answer, error) {
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, sent := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	// There may be an answer although not everything could be sent.
	got, err := readAnswer(conn)
	return got, errors.Join(err, errIf(err != nil, sent))
}

func errIf(condition bool, err error) error {
	if condition {
		return err
	}
	return nil
}

func readAnswer(conn net.Conn) (answer, error) {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, raw: raw}, err
}

func mustAsk(t *testing.T, conn net.Conn, method, path, body string) answer {
	t.Helper()
	got, err := ask(conn, method, path, body)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	got.body = object(t, got.raw)
	return got
}

// probe asks as the kubelet does: on a connection of its own, with the patience that
// the chart gives it.
func probe(t *testing.T, service *eventservice.Process) {
	t.Helper()
	kubelet := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := kubelet.Get(service.HealthURL)
	if err != nil {
		t.Errorf("the probe has no answer: %v", err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the probe is answered %s", resp.Status)
	}
}

// TestIdleConnections: connections that nobody uses keep nobody else out. Fails on
// the commit before: the probe, and every new client, got a 503 for two minutes.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	adapter := newAdapter(t)
	const limit = 200
	service := start(t, adapter.URL, fmt.Sprintf("--maxConnections=%d", limit))
	for range limit + 50 {
		if got := mustAsk(t, dial(t, service), http.MethodGet, "/v1/health", ""); got.status != 200 {
			t.Fatalf("%s", got)
		}
	}
	probe(t, service)
	for range 20 {
		if got := mustAsk(t, dial(t, service), http.MethodPost, eventsV1, eventOf(uuid.NewString())); got.status != 200 {
			t.Errorf("a new client: %s", got)
		}
	}
	if n := metric(t, service, "event_service_connections_closed_total"); n < 70 {
		t.Errorf("%v connections were closed, want at least 70", n)
	}
	if n := metric(t, service, "event_service_connections_refused_total"); n != 0 {
		t.Errorf("%v connections were refused", n)
	}
}

// TestSilentConnections: nor do clients that begin a request and send no more, be it in
// the header or in the body. Those that lose their place in the middle of a body are
// told.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	adapter := newAdapter(t)
	const limit = 20
	service := start(t, adapter.URL, fmt.Sprintf("--maxConnections=%d", limit), "--requestTimeout=60")
	var bodies []net.Conn
	for i := range limit {
		conn := dial(t, service)
		switch i % 3 {
		case 0: // nothing at all
		case 1:
			if _, err := fmt.Fprint(conn, "POST /shop/v1/events HTTP/1.1\r\nHost: x\r\n"); err != nil {
				t.Fatal(err)
			}
		case 2:
			if err := announce(conn, 1000); err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, conn)
		}
	}
	// All at once, so that none of them can have the place of another.
	adapter.Answer(func(http.ResponseWriter, *http.Request) { time.Sleep(3 * time.Second) })
	var all sync.WaitGroup
	for range limit - 5 {
		conn := dial(t, service)
		all.Go(func() {
			if got, err := ask(conn, http.MethodPost, eventsV1, eventOf(uuid.NewString())); err != nil || got.status != 200 {
				t.Errorf("a new client: %v %s", err, got)
			}
		})
	}
	all.Wait()
	told := 0
	for _, conn := range bodies {
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if got, err := readAnswer(conn); err == nil {
			if told++; got.status != 503 || got.header.Get("Retry-After") != "2" || !strings.Contains(string(got.raw), `"type":"overloaded"`) {
				t.Errorf("a client that was silent: %s", got)
			}
		}
	}
	if told == 0 {
		t.Error("nobody lost its place in the middle of a body: this proves nothing")
	}
}

// TestConnectionLimit: if every connection waits for its answer, nobody is closed. A
// new client gets a 503 that it can read, and the probe its answer. Fails on the commit
// before: the 503 was there before the request, which Go's client takes for an idle
// connection that has ended.
func TestConnectionLimit(t *testing.T) {
	adapter := newAdapter(t)
	arrived, hold := make(chan struct{}, 3), make(chan struct{})
	adapter.Answer(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-hold
	})
	service := start(t, adapter.URL, "--maxConnections=3", "--requestTimeout=60")
	answers := make(chan answer, 3)
	for range 3 {
		conn := dial(t, service)
		go func() {
			got, err := ask(conn, http.MethodPost, eventsV1, eventOf(uuid.NewString()))
			if err != nil {
				t.Errorf("no answer: %v", err)
			}
			answers <- got
		}()
	}
	for range 3 {
		<-arrived
	}
	for range 20 {
		resp, err := (&http.Client{Timeout: patience, Transport: &http.Transport{}}).Post(service.URL+eventsV1, "application/json", strings.NewReader(eventOf(uuid.NewString())))
		if err != nil {
			t.Errorf("no answer: %v", err)
			continue
		}
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "2" || object(t, raw)["type"] != "overloaded" {
			t.Errorf("%s %v %s", resp.Status, resp.Header, raw)
		}
	}
	probe(t, service)
	if n := metric(t, service, "event_service_connections_refused_total"); n != 20 {
		t.Errorf("%v connections were refused, want 20", n)
	}
	close(hold)
	for range 3 {
		if got := <-answers; got.status != 200 {
			t.Errorf("%s", got)
		}
	}
	if got := mustAsk(t, dial(t, service), http.MethodPost, eventsV1, eventOf(uuid.NewString())); got.status != 200 {
		t.Errorf("afterwards: %s", got)
	}
}

// TestBurst: more clients at once than there are places, each with a connection of its
// own that it keeps: every one has an answer, and those that are turned away are told
// when to come again. Fails on the commit before: most saw the end of the connection.
func TestBurst(t *testing.T) {
	adapter := newAdapter(t)
	const limit, clients = 100, 1000
	service := start(t, adapter.URL, fmt.Sprintf("--maxConnections=%d", limit))
	var (
		mu       sync.Mutex
		statuses = map[int]int{}
		all      sync.WaitGroup
		at       = make(chan struct{})
	)
	for range clients {
		all.Go(func() {
			<-at
			conn, err := net.Dial("tcp", strings.TrimPrefix(service.URL, "http://"))
			if err != nil {
				t.Errorf("no connection: %v", err)
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			got, err := ask(conn, http.MethodPost, eventsV1, eventOf(uuid.NewString()))
			if err != nil {
				t.Errorf("no answer: %v", err)
				return
			}
			if got.status != 200 && (got.status != 503 || got.header.Get("Retry-After") == "") {
				t.Errorf("%s", got)
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[got.status]++
		})
	}
	close(at)
	for range 5 {
		probe(t, service)
	}
	all.Wait()
	if statuses[200] < clients/2 || adapter.Total() != statuses[200] {
		t.Errorf("answers by status: %v; the adapter got %d events", statuses, adapter.Total())
	}
	t.Logf("answers by status: %v", statuses)
}

// TestLateFirstRequest: a client that loses its place before it has sent anything is
// answered all the same. Fails on the commit before: it saw the end of the connection.
func TestLateFirstRequest(t *testing.T) {
	adapter := newAdapter(t)
	const limit = 10
	service := start(t, adapter.URL, fmt.Sprintf("--maxConnections=%d", limit))
	late := make([]net.Conn, limit)
	for i := range late {
		late[i] = dial(t, service)
	}
	for range limit {
		if got := mustAsk(t, dial(t, service), http.MethodPost, eventsV1, eventOf(uuid.NewString())); got.status != 200 {
			t.Errorf("a new client: %s", got)
		}
	}
	if n := metric(t, service, "event_service_connections_closed_total"); n == 0 {
		t.Error("nobody lost its place: this proves nothing")
	}
	refused := 0
	for _, conn := range late {
		got, err := ask(conn, http.MethodPost, eventsV1, eventOf(uuid.NewString()))
		switch {
		case err != nil:
			t.Errorf("a late client: %v", err)
		case got.status == 503 && got.header.Get("Retry-After") == "2":
			refused++
		case got.status != 200:
			t.Errorf("a late client: %s", got)
		}
	}
	if refused == 0 {
		t.Error("no late client was refused: this proves nothing")
	}
}

// chartMemory is what the chart gives a pod, and tells Go's garbage collector.
func chartMemory(t *testing.T) (limit int64, target string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "charts", "application", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		EventServiceOnMesh struct {
			MemoryTarget string
			Resources    struct{ Limits struct{ Memory string } }
		}
	}
	if err := yaml.Unmarshal(raw, &values); err != nil {
		t.Fatal(err)
	}
	mesh := values.EventServiceOnMesh
	mib, err := strconv.ParseInt(strings.TrimSuffix(mesh.Resources.Limits.Memory, "Mi"), 10, 64)
	if err != nil || mesh.MemoryTarget == "" {
		t.Fatalf("the chart's limit of memory is %q, its target %q: %v", mesh.Resources.Limits.Memory, mesh.MemoryTarget, err)
	}
	return mib << 20, mesh.MemoryTarget
}

// peak returns the most that the process has held, in bytes.
func peak(t testing.TB, pid int) int64 { return status(t, pid, "VmHWM:") }

// TestPeakMemory: with more idle connections than there are places, as many events as
// are let in at once, each of the largest size, and as many bodies that do not end, a
// quarter of the pod's memory stays free. Fails on the commit before: 118 of 128 MiB.
// The race detector multiplies what a process takes: the program is built without it.
func TestPeakMemory(t *testing.T) {
	long(t)
	limit, target := chartMemory(t)
	adapter := newAdapter(t)
	adapter.Answer(func(http.ResponseWriter, *http.Request) { time.Sleep(200 * time.Millisecond) })
	service, err := eventservice.Start(t.Context(), process.BuildPlain(t, "./cmd/event-service"), []string{"GOMEMLIMIT=" + target},
		"--eventMeshURL="+adapter.URL, "--sourceId=shop", "--requestTimeout=30")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Kill)
	const idle, busy, slow, each = 2200, 700, 300, 10
	for range idle {
		if got := mustAsk(t, dial(t, service), http.MethodGet, "/v1/health", ""); got.status != 200 {
			t.Fatalf("%s", got)
		}
	}
	afterIdle := peak(t, service.PID())
	for range slow {
		conn := dial(t, service)
		if err := announce(conn, 65000); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(bytes.Repeat([]byte(" "), 60000)); err != nil {
			t.Fatal(err)
		}
	}
	var (
		mu       sync.Mutex
		statuses = map[int]int{}
		all      sync.WaitGroup
	)
	for range busy {
		all.Go(func() {
			for range each {
				conn, err := net.Dial("tcp", strings.TrimPrefix(service.URL, "http://"))
				if err != nil {
					t.Errorf("no connection: %v", err)
					return
				}
				got, err := ask(conn, http.MethodPost, eventsV1, eventservice.Event(60_000))
				_ = conn.Close()
				if err != nil {
					t.Errorf("no answer: %v", err)
				}
				mu.Lock()
				statuses[got.status]++
				mu.Unlock()
				if got.status == 503 {
					time.Sleep(300 * time.Millisecond) // as a client that is told to
				}
			}
		})
	}
	all.Wait()
	probe(t, service)
	most := peak(t, service.PID())
	t.Logf("peak of %d MiB, after idle connections %d MiB; the pod has %d MiB; answers by status: %v", most>>20, afterIdle>>20, limit>>20, statuses)
	if statuses[200] == 0 || statuses[503] == 0 || len(statuses) != 2 {
		t.Errorf("answers by status: %v; want some 200, some 503, and nothing else", statuses)
	}
	if bound := limit / 4 * 3; most > bound {
		t.Errorf("peak of %d MiB: less than a quarter of the pod's %d MiB is free", most>>20, limit>>20)
	}
}
