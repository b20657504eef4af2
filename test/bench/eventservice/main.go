// Command eventservice measures the event-service against a bare reverse proxy
// (httputil.ReverseProxy), beside slow clients, and under twice the load it may take.
//
//	go run ./test/bench/eventservice
//
// Absolute times on a shared machine say little. The two are therefore compared as separate
// processes in front of the same adapter, with the same clients and bodies. Both run in turns in
// one run of this program, which reports the median of the ratios.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/measure"
)

const connections = 512

// asInPod is what charts/application sets.
var asInPod = []string{"GOMEMLIMIT=100MiB"}

type options struct {
	pairs   int
	each    time.Duration
	clients int
	size    int
	slow    time.Duration
	// slowClients are at it at once.
	slowClients int
	overload    time.Duration
	// procs is how many cores each of the two servers may use; 0: all.
	procs int
}

// cores is the environment that limits a server to o.procs cores.
func (o options) cores() []string {
	if o.procs == 0 {
		return nil
	}
	return []string{fmt.Sprintf("GOMAXPROCS=%d", o.procs)}
}

func main() {
	var o options
	role := flag.String("role", "", "internal: adapter, or proxy")
	target := flag.String("target", "", "internal: where the proxy sends")
	listen := flag.String("listen", "127.0.0.1:0", "internal: where adapter and proxy listen")
	took := flag.Duration("took", 0, "internal: how long the adapter takes")
	flag.IntVar(&o.pairs, "pairs", 7, "how often the two are measured")
	flag.DurationVar(&o.each, "each", 3*time.Second, "how long each time")
	flag.IntVar(&o.procs, "procs", 0, "how many cores each of the two servers may use; 0: all")
	flag.IntVar(&o.clients, "clients", 32, "clients at once")
	flag.IntVar(&o.size, "size", 1024, "bytes of a body")
	flag.IntVar(&o.slowClients, "slow-clients", 100, "how many clients are slow")
	flag.DurationVar(&o.slow, "slow", 20*time.Second, "how long slow clients send; 0: not at all")
	flag.DurationVar(&o.overload, "overload", time.Minute, "how long twice the capacity is offered; 0: not at all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch *role {
	case "adapter":
		err = serve(ctx, *listen, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(*took)
		}))
	case "proxy":
		err = proxy(ctx, *listen, *target)
	default:
		err = run(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// serve tells its address on stdout, and ends with ctx.
func serve(ctx context.Context, listen string, h http.Handler) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// proxy does nothing but hand on, with a connection pool as large as that of the
// event-service: with the default of two, it would measure the opening of
// connections.
func proxy(ctx context.Context, listen, target string) error {
	to, err := url.Parse(target)
	if err != nil {
		return err
	}
	return serve(ctx, listen, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.Path = cmp.Or(to.Path, "/")
		},
		Transport: &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections, DisableCompression: true},
	})
}

// child starts this program in another role, with more environment, and returns its address and
// process.
func child(ctx context.Context, env []string, args ...string) (string, int, error) {
	self, err := os.Executable()
	if err != nil {
		return "", 0, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", 0, err
	}
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	var address string
	_, err = fmt.Fscanln(out, &address)
	return address, cmd.Process.Pid, err
}

func run(ctx context.Context, o options) error {
	ctx, cancel := context.WithCancel(ctx) // ends the children
	defer cancel()
	dir, err := os.MkdirTemp("", "eventservice-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	binary := filepath.Join(dir, "event-service")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "github.com/kyma-project/eventmesh-migration/cmd/event-service")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("cannot build event-service: %w", err)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	fmt.Printf("load of the machine before: %s", load)
	if err := compare(ctx, o, binary); err != nil {
		return err
	}
	if err := slow(ctx, o, binary); err != nil {
		return err
	}
	if o.overload == 0 {
		return nil
	}
	return overload(ctx, o, binary)
}

// compare pairs the two.
func compare(ctx context.Context, o options, binary string) error {
	adapter, _, err := child(ctx, nil, "-role=adapter")
	if err != nil {
		return fmt.Errorf("cannot start the adapter: %w", err)
	}
	bare, barePID, err := child(ctx, o.cores(), "-role=proxy", "-target="+adapter)
	if err != nil {
		return fmt.Errorf("cannot start the proxy: %w", err)
	}
	service, err := eventservice.Start(ctx, binary, slices.Concat(asInPod, o.cores()), "--eventMeshURL="+adapter, "--sourceId=shop")
	if err != nil {
		return err
	}
	defer service.Kill()
	client, body := eventservice.NewClient(o.clients), eventservice.Event(o.size)
	sample := func(address string, each time.Duration) (*eventservice.Load, error) {
		l := eventservice.Closed(ctx, client, address+"/shop/v1/events", body, o.clients, each)
		if l.Answered(http.StatusOK) != len(l.Latencies) || len(l.Latencies) == 0 {
			return nil, fmt.Errorf("not every event was taken: %v", l.Statuses)
		}
		return l, ctx.Err()
	}
	for _, address := range []string{bare, service.URL} { // warm
		if _, err := sample(address, time.Second); err != nil {
			return err
		}
	}
	fmt.Printf("\n%d clients, bodies of %d bytes, %d pairs of %s each\n\n", o.clients, o.size, o.pairs, o.each)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "proxy/s\tp50\tp99\tevent-service/s\tp50\tp99\tthroughput\tp99\tCPU\t")
	var throughput, tail, effort []float64
	processes := map[string]int{bare: barePID, service.URL: service.PID()}
	for i := range o.pairs {
		order := []string{bare, service.URL}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		loads, spent := map[string]*eventservice.Load{}, map[string]float64{}
		for _, address := range order {
			before := measure.CPU(processes[address])
			if loads[address], err = sample(address, o.each); err != nil {
				return err
			}
			spent[address] = (measure.CPU(processes[address]) - before) / float64(len(loads[address].Latencies))
		}
		a, b := loads[bare], loads[service.URL]
		throughput = append(throughput, b.PerSecond()/a.PerSecond())
		tail = append(tail, float64(b.Percentile(99))/float64(a.Percentile(99)))
		effort = append(effort, spent[service.URL]/spent[bare])
		fmt.Fprintf(out, "%.0f\t%s\t%s\t%.0f\t%s\t%s\t%.2f\t%.2f\t%.2f\t\n", a.PerSecond(), short(a.Percentile(50)), short(a.Percentile(99)),
			b.PerSecond(), short(b.Percentile(50)), short(b.Percentile(99)), throughput[i], tail[i], effort[i])
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Printf("\nmedian of the ratios: throughput %.2f (at least 0.7), p99 %.2f (at most 1.5), CPU for one event %.2f; memory of event-service %s\n",
		median(throughput), median(tail), median(effort), memory(service.PID()))
	return nil
}

// slow lets clients announce the largest body, and send it byte by byte.
func slow(ctx context.Context, o options, binary string) error {
	if o.slow == 0 {
		return nil
	}
	const announced = 65536
	adapter, _, err := child(ctx, nil, "-role=adapter")
	if err != nil {
		return fmt.Errorf("cannot start the adapter: %w", err)
	}
	service, err := eventservice.Start(ctx, binary, asInPod, "--eventMeshURL="+adapter, "--sourceId=shop", "--requestTimeout=3600")
	if err != nil {
		return err
	}
	defer service.Kill()
	client, body := eventservice.NewClient(1), eventservice.Event(o.size)
	sample := func() (string, error) {
		l := eventservice.Closed(ctx, client, service.URL+"/shop/v1/events", body, 1, time.Second)
		if l.Answered(http.StatusOK) != len(l.Latencies) || len(l.Latencies) == 0 {
			return "", fmt.Errorf("beside slow clients, not every event was taken: %v", l.Statuses)
		}
		return fmt.Sprintf("%s (another client: %.0f/s, p99 %s)", memory(service.PID()), l.PerSecond(), short(l.Percentile(99))), nil
	}
	before, err := sample()
	if err != nil {
		return err
	}
	fmt.Printf("\n%d clients that announce %d bytes each and send 10 a second, for %s\nmemory before: %s\n", o.slowClients, announced, o.slow, before)
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	var dialer net.Dialer
	for range o.slowClients {
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(service.URL, "http://"))
		if err != nil {
			return err
		}
		conns = append(conns, conn)
		if _, err := fmt.Fprintf(conn, "POST /shop/v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", announced); err != nil {
			return err
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began, shown := time.Now(), 0
	for time.Since(began) < o.slow {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		for _, conn := range conns {
			if _, err := conn.Write([]byte(" ")); err != nil {
				return fmt.Errorf("a slow client was cut off: %w", err)
			}
		}
		if part := int(4 * time.Since(began) / o.slow); part > shown {
			shown = part
			now, err := sample()
			if err != nil {
				return err
			}
			fmt.Printf("after %s: %s\n", time.Since(began).Round(time.Second), now)
		}
	}
	return nil
}

// overload offers twice what the service may take.
func overload(ctx context.Context, o options, binary string) error {
	const slots, took = 16, 100 * time.Millisecond
	const capacity = int(slots * time.Second / took)
	adapter, _, err := child(ctx, nil, "-role=adapter", "-took="+took.String())
	if err != nil {
		return fmt.Errorf("cannot start the adapter: %w", err)
	}
	service, err := eventservice.Start(ctx, binary, asInPod, "--eventMeshURL="+adapter, "--sourceId=shop", fmt.Sprintf("--maxInFlight=%d", slots))
	if err != nil {
		return err
	}
	defer service.Kill()
	address, client, body := service.URL+"/shop/v1/events", eventservice.NewClient(4*slots), eventservice.Event(o.size)
	// Clients that cannot be served in time queue for a connection of their own.
	client.Transport.(*http.Transport).MaxConnsPerHost = 1024
	fmt.Printf("\ncapacity %d/s (%d at once, an adapter that takes %s); offered twice that for %s\n\n", capacity, slots, took, o.overload)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "phase\toffered/s\ttaken/s\tshed with Retry-After\tother\tp99\tmemory\t")
	// phase returns the share that was shed.
	phase := func(name string, rate int, duration time.Duration) (float64, error) {
		l, err := eventservice.Open(ctx, client, address, body, rate, duration)
		if err != nil {
			return 0, err
		}
		shed := l.Answered(http.StatusServiceUnavailable) - l.Unhelpful
		other := len(l.Latencies) + l.Statuses[0] - l.Answered(http.StatusOK) - shed
		fmt.Fprintf(out, "%s\t%d\t%.0f\t%d\t%d\t%s\t%s\t\n", name, rate, l.PerSecond(), shed,
			other, short(l.Percentile(99)), memory(service.PID()))
		if other > 0 {
			return 0, errors.Join(fmt.Errorf("in phase %q, %d were answered otherwise: %v", name, other, l.Statuses), out.Flush())
		}
		return float64(shed) / float64(max(1, len(l.Latencies))), nil
	}
	const phases, calm = 5, 10 * time.Second
	before, err := phase("before", capacity/2, calm)
	if err != nil {
		return err
	}
	for i := range phases {
		if _, err := phase(fmt.Sprintf("overload %d/%d", i+1, phases), 2*capacity, o.overload/phases); err != nil {
			return err
		}
	}
	after, err := phase("after", capacity/2, calm)
	if err != nil {
		return err
	}
	// On a busy machine, requests come in bunches, some of which are too large also for
	// a service that is well.
	if after > before+0.1 {
		return errors.Join(fmt.Errorf("it has not recovered: %.0f %% were shed before, %.0f %% are after", 100*before, 100*after), out.Flush())
	}
	return out.Flush()
}

func short(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// memory is the resident set of a process.
func memory(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "?"
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "?"
}
