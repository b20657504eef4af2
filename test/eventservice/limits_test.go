package eventservice_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// dial opens a connection to the service, closed with the test.
func dial(t testing.TB, service *eventservice.Process) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(service.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// announce sends the header of an event of n bytes.
func announce(conn net.Conn, n int) error {
	_, err := fmt.Fprintf(conn, "POST /shop/v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", n)
	return err
}

// memory returns what the process holds, in bytes.
func memory(t testing.TB, pid int) int64 { return status(t, pid, "VmRSS:") }

// status returns a line of the process's status that is a size, in bytes.
func status(t testing.TB, pid int, name string) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			kib, err := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// metric returns the value of one line of /metrics, 0 if there is none.
func metric(t testing.TB, service *eventservice.Process, name string) float64 {
	t.Helper()
	resp, err := client.Get(service.MetricsURL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return 0
}

// TestSlowClients: a hundred clients that announce the largest body and send it
// byte by byte take no memory worth speaking of, keep nobody else out, and are
// answered when their time is up.
func TestSlowClients(t *testing.T) {
	long(t)
	t.Parallel()
	adapter := newAdapter(t)
	service := start(t, adapter.URL, "--requestTimeout=15", "--maxInFlight=10")
	for range 20 { // warm
		mustSend(t, http.MethodPost, service.URL+eventsV1, eventOf(uuid.NewString()), nil)
	}
	before := memory(t, service.PID())
	const slow = 100
	answers := make(chan string, slow)
	var stop atomic.Bool
	defer stop.Store(true)
	for range slow {
		conn := dial(t, service)
		if err := announce(conn, 65536); err != nil {
			t.Fatal(err)
		}
		go func() {
			for !stop.Load() {
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		go func() {
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			raw, err := io.ReadAll(conn)
			if err != nil && len(raw) == 0 {
				raw = []byte(err.Error())
			}
			answers <- string(raw)
		}()
	}
	// While they are at it, others are served.
	for range 20 {
		if got := mustSend(t, http.MethodPost, service.URL+eventsV1, eventOf(uuid.NewString()), nil); got.status != 200 {
			t.Errorf("%s", got)
		}
	}
	grown, held := memory(t, service.PID())-before, metric(t, service, "event_service_body_bytes")
	for range slow {
		got := <-answers
		if !strings.HasPrefix(got, "HTTP/1.1 408 ") || !strings.Contains(got, `"type":"timeout"`) {
			t.Errorf("a slow client was answered %q", got)
		}
	}
	// Announced were 6.4 MiB. A connection has two buffers and a stack; the race
	// detector makes each several times as large.
	if most := int64(64 << 20); grown > most {
		t.Errorf("memory grew by %d KiB", grown>>10)
	}
	if most := float64(slow * 4 << 10); held == 0 || held > most {
		t.Errorf("bodies of which nearly nothing has come held %v bytes, want at most %v", held, most)
	}
	if held = metric(t, service, "event_service_body_bytes"); held != 0 {
		t.Errorf("%v bytes of bodies are still held", held)
	}
}

// TestSlowHeaders: who does not even send a header is cut off.
func TestSlowHeaders(t *testing.T) {
	t.Parallel()
	service := start(t, newAdapter(t).URL, "--requestTimeout=1")
	conn := dial(t, service)
	if _, err := fmt.Fprint(conn, "POST /shop/v1/events HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("the connection was not closed: %v", err)
	}
}

// TestSlowBodyThenEvent: a body that takes nearly all of its time leaves the
// adapter the time of its own.
func TestSlowBodyThenEvent(t *testing.T) {
	long(t)
	t.Parallel()
	adapter := newAdapter(t)
	adapter.Answer(func(http.ResponseWriter, *http.Request) { time.Sleep(6 * time.Second) })
	service := start(t, adapter.URL, "--requestTimeout=10")
	id := uuid.NewString()
	body := eventOf(id)
	conn := dial(t, service)
	if err := announce(conn, len(body)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(6 * time.Second)
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("answered %s", resp.Status)
	}
}

// TestShedding: beyond its limit the service refuses at once, and says when to come
// again; when the adapter is quick again, it takes everything again.
func TestShedding(t *testing.T) {
	adapter := newAdapter(t)
	hold := make(chan struct{})
	adapter.Answer(func(http.ResponseWriter, *http.Request) { <-hold })
	const slots, clients = 4, 40
	service := start(t, adapter.URL, fmt.Sprintf("--maxInFlight=%d", slots), "--requestTimeout=60")
	answers := make(chan answer, clients)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			got, err := send(t.Context(), http.MethodPost, service.URL+eventsV1, strings.NewReader(eventOf(uuid.NewString())), nil)
			if err != nil {
				t.Errorf("no answer: %v", err)
			}
			answers <- got
		})
	}
	// All but those in the slots are answered while the adapter answers nobody.
	for range clients - slots {
		got := <-answers
		if got.status != 503 || got.header.Get("Retry-After") != "2" || got.body["type"] != "overloaded" {
			t.Errorf("%s", got)
		}
	}
	if n := metric(t, service, "event_service_events_in_flight"); n != slots {
		t.Errorf("%v events in flight, want %d", n, slots)
	}
	if n := metric(t, service, `event_service_events_refused_total{cause="overloaded"}`); n != clients-slots {
		t.Errorf("%v events counted as refused, want %d", n, clients-slots)
	}
	// Health does not depend on it.
	if got := mustSend(t, http.MethodGet, service.URL+"/v1/health", "", nil); got.status != 200 {
		t.Errorf("health is %s", got)
	}
	close(hold)
	for range slots {
		if got := <-answers; got.status != 200 {
			t.Errorf("%s", got)
		}
	}
	all.Wait()
	if got := mustSend(t, http.MethodPost, service.URL+eventsV1, eventOf(uuid.NewString()), nil); got.status != 200 {
		t.Errorf("afterwards: %s", got)
	}
}

// TestBigBodiesAtOnce: the memory of bodies is bounded whatever arrives.
func TestBigBodiesAtOnce(t *testing.T) {
	adapter := newAdapter(t)
	// Room for two bodies of this size.
	service := start(t, adapter.URL, "--maxRequestSize=20000000", "--requestTimeout=60")
	const size = 19_000_000
	// Two clients that send nearly all of a body, and stop.
	began := time.Now()
	var senders []net.Conn
	for range 2 {
		conn := dial(t, service)
		senders = append(senders, conn)
		if err := announce(conn, size); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(bytes.Repeat([]byte(" "), size-1)); err != nil {
			t.Fatal(err)
		}
	}
	held := func() float64 { return metric(t, service, "event_service_body_bytes") }
	poll.Until(t, patience, "both bodies are held", func(context.Context) error {
		if now := held(); now < 2*size {
			return fmt.Errorf("%v bytes of %d are held", now, 2*size)
		}
		return nil
	})
	got := mustSend(t, http.MethodPost, service.URL+eventsV1, v1(fields{"data": strings.Repeat("x", 1<<20)}), nil)
	// One that takes more than a second, as on a busy machine, gives way to the third.
	gaveWay := time.Since(began) >= time.Second && got.status == 200 && held() < 2*size
	if !gaveWay && (got.status != 503 || got.body["type"] != "overloaded") {
		t.Errorf("%.300s", got)
	}
	if taken := held(); taken > 2*20_000_001 {
		t.Errorf("%v bytes of bodies are held", taken)
	}
	for _, conn := range senders {
		_ = conn.Close()
	}
	poll.Until(t, patience, "no body is held, as nobody sends one", func(context.Context) error {
		if now := held(); now > 0 {
			return fmt.Errorf("%v bytes are held", now)
		}
		return nil
	})
	if got := mustSend(t, http.MethodPost, service.URL+eventsV1, v1(nil), nil); got.status != 200 {
		t.Errorf("%s", got)
	}
}

// TestMetrics: what is counted.
func TestMetrics(t *testing.T) {
	service := start(t, newAdapter(t).URL)
	for range 3 {
		mustSend(t, http.MethodPost, service.URL+eventsV1, v1(nil), nil)
	}
	mustSend(t, http.MethodPost, service.URL+eventsV2, v2(fields{"id": nil}), nil)
	mustSend(t, http.MethodGet, service.URL+"/secret-path", "", nil)
	for name, want := range map[string]float64{
		`event_service_requests_total{code="200",route="v1/events"}`:      3,
		`event_service_requests_total{code="400",route="v2/events"}`:      1,
		`event_service_requests_total{code="404",route="other"}`:          1,
		`event_service_request_duration_seconds_count{route="v1/events"}`: 3,
		`event_service_mesh_duration_seconds_count`:                       3,
		`event_service_events_refused_total{cause="invalid"}`:             1,
		`event_service_events_in_flight`:                                  0,
	} {
		if got := metric(t, service, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// TestOverload: twice what the service may take, for some seconds (for minutes in
// make bench): it sheds and says so, loses nobody, does not grow, and is itself
// again at once.
func TestOverload(t *testing.T) {
	long(t)
	adapter := newAdapter(t)
	const slots, took = 4, 50 * time.Millisecond
	adapter.Answer(func(http.ResponseWriter, *http.Request) { time.Sleep(took) })
	service := start(t, adapter.URL, fmt.Sprintf("--maxInFlight=%d", slots))
	capacity := int(slots * time.Second / took)
	clients := eventservice.NewClient(4 * slots)
	body := eventservice.Event(16 << 10)
	overload := func(duration time.Duration) *eventservice.Load {
		load, err := eventservice.Open(t.Context(), clients, service.URL+eventsV1, body, 2*capacity, duration)
		if err != nil {
			t.Fatal(err)
		}
		return load
	}
	load := overload(3 * time.Second)
	if load.Answered(200)+load.Answered(503) != len(load.Latencies) || load.Statuses[0] != 0 || load.Unhelpful != 0 {
		t.Errorf("answers by status: %v, %d of them 503 without Retry-After", load.Statuses, load.Unhelpful)
	}
	if load.Answered(200) == 0 || load.Answered(503) == 0 {
		t.Errorf("answers by status: %v; this proves nothing", load.Statuses)
	}
	// make bench checks that the process does not grow: the race detector, and a machine that has
	// no time for its garbage collector, hide it here.
	for _, name := range []string{"event_service_body_bytes", "event_service_events_in_flight"} {
		if held := metric(t, service, name); held != 0 {
			t.Errorf("afterwards %s is %v", name, held)
		}
	}
	for range 20 {
		if got := mustSend(t, http.MethodPost, service.URL+eventsV1, v1(nil), nil); got.status != 200 {
			t.Errorf("afterwards: %s", got)
		}
	}
}
