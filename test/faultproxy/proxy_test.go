package faultproxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// childEnv makes the test binary a process under test instead: see child.
const childEnv = "FAULTPROXY_TEST_KUBECONFIG"

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(childEnv); kubeconfig != "" {
		os.Exit(child(kubeconfig))
	}
	os.Exit(m.Run())
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// apiServer is as much of a kube-apiserver as the tests need: ConfigMaps in one
// namespace that can be created, read, listed in pages of any size and watched.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex
	objects  map[string]json.RawMessage
	requests []*http.Request
	// creating, if set, is called before a ConfigMap is stored.
	creating func()
	events   chan string
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{objects: map[string]json.RawMessage{}, events: make(chan string)}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	creating := s.creating
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")

	switch {
	case r.Method == http.MethodPost:
		var object struct{ Metadata struct{ Name string } }
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &object)
		if creating != nil {
			creating()
		}
		s.mu.Lock()
		s.objects[object.Metadata.Name] = body
		s.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	case r.URL.Query().Get("watch") != "":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for {
			select {
			case name := <-s.events:
				fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}}`+"\n", name)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	default:
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"ConfigMapList","metadata":{},"items":[]}`)
	}
}

func (s *apiServer) stored() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

func (s *apiServer) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func startProxy(t *testing.T, s *apiServer, options ...Option) *Proxy {
	t.Helper()
	p, err := Start(s.config(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func client(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.UserAgent, config.QPS = "under-test/1", -1
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(configMaps).Namespace("n")
}

func configMap(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
	}}
}

func TestPassesThrough(t *testing.T) {
	cases := map[string]struct {
		reason  string
		options []Option
		proto   string
	}{
		"HTTP2": {reason: "Clients of a kube-apiserver get HTTP/2.", proto: "HTTP/2.0"},
		"HTTP1": {reason: "HTTP/1.1 gives each request a connection of its own.", options: []Option{HTTP1()}, proto: "HTTP/1.1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s := newAPIServer(t)
			p := startProxy(t, s, tc.options...)
			path, err := p.Kubeconfig(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			config, err := clientcmd.BuildConfigFromFlags("", path)
			if err != nil {
				t.Fatal(err)
			}
			c := client(t, config)

			if _, err := c.Create(ctx, configMap("x"), metav1.CreateOptions{}); err != nil {
				t.Fatalf("%s\ncreate through the proxy: %v", tc.reason, err)
			}
			s.mu.Lock()
			got := s.requests[0]
			s.mu.Unlock()
			if diff := cmp.Diff([]string{"Bearer secret", "under-test/1"}, []string{got.Header.Get("Authorization"), got.UserAgent()}); diff != "" {
				t.Errorf("the API server must see the client's credentials and user agent: -want, +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.proto, negotiated(t, p)); diff != "" {
				t.Errorf("%s\nprotocol: -want, +got:\n%s", tc.reason, diff)
			}

			w, err := c.Watch(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatalf("watch through the proxy: %v", err)
			}
			defer w.Stop()
			// The stream stays open: each event must come by itself.
			for _, name := range []string{"a", "b"} {
				s.events <- name
				if e := next(ctx, t, w); e.Object.(*unstructured.Unstructured).GetName() != name {
					t.Errorf("event %v, want ConfigMap %s", e, name)
				}
			}
			if diff := cmp.Diff([]string{"create configmaps n/x 201", "watch configmaps in n 200"}, answered(p)); diff != "" {
				t.Errorf("log: -want, +got:\n%s", diff)
			}
			if p.Writes() != 1 {
				t.Errorf("%d writes counted, want 1", p.Writes())
			}
		})
	}
}

func negotiated(t *testing.T, p *Proxy) string {
	t.Helper()
	h := http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer h.CloseIdleConnections()
	response, err := h.Get(p.server.URL + "/version")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.Proto
}

func next(ctx context.Context, t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch ended")
		}
		return e
	case <-ctx.Done():
		t.Fatal("no event came")
	}
	return watch.Event{}
}

// answered lists what clients were answered, other than for /version.
func answered(p *Proxy) []string {
	var out []string
	for _, e := range p.Log() {
		if e.Resource != "" {
			out = append(out, fmt.Sprintf("%s %d", e.Request, e.Status))
		}
	}
	return out
}

// child makes five ConfigMaps, says so, and reports any error it ever sees.
func child(kubeconfig string) int {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	// A read that stays open tells of every broken connection.
	w, err := c.Resource(configMaps).Namespace("n").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	go func() {
		for range w.ResultChan() {
		}
		fmt.Println("error: the watch ended")
	}()
	for i := range 5 {
		_, err := c.Resource(configMaps).Namespace("n").Create(context.Background(), configMap(fmt.Sprint(i+1)), metav1.CreateOptions{})
		if err != nil {
			fmt.Println("error:", err)
			return 1
		}
		fmt.Println("created", i+1)
	}
	return 0
}

func TestKillAt(t *testing.T) {
	cases := map[string]struct {
		reason string
		n      int
		when   When
		stored []string
		stdout string
		killed bool
	}{
		"BeforeFirst": {reason: "Nothing has reached the API server.", n: 1, when: Before, stdout: "", killed: true},
		"AfterFirst":  {reason: "The process never heard that it was stored.", n: 1, when: After, stored: []string{"1"}, killed: true},
		"BeforeThird": {reason: "The third never arrives.", n: 3, when: Before, stored: []string{"1", "2"}, stdout: "created 1\ncreated 2\n", killed: true},
		"AfterThird":  {reason: "The third is stored, the process heard of two.", n: 3, when: After, stored: []string{"1", "2", "3"}, stdout: "created 1\ncreated 2\n", killed: true},
		"PastTheEnd": {
			reason: "A process that makes fewer writes lives.", n: 6, when: Before,
			stored: []string{"1", "2", "3", "4", "5"}, stdout: "created 1\ncreated 2\ncreated 3\ncreated 4\ncreated 5\n",
		},
	}
	for name, tc := range cases {
		for _, options := range [][]Option{nil, {HTTP1()}} {
			t.Run(fmt.Sprintf("%s/HTTP%d", name, 2-len(options)), func(t *testing.T) {
				s := newAPIServer(t)
				p := startProxy(t, s, options...)
				kubeconfig, err := p.Kubeconfig(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				var stdout strings.Builder
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), childEnv+"="+kubeconfig)
				cmd.Stdout = &stdout
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				dead := make(chan struct{})
				go func() {
					defer close(dead)
					_ = cmd.Wait()
				}()
				timeout := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
				defer timeout.Stop()
				k := p.KillAt(tc.n, tc.when, func() {
					_ = cmd.Process.Kill()
					<-dead
				})
				<-dead

				if tc.killed {
					<-k.Dead()
				}
				at, killed := k.At()
				if killed != tc.killed || killed && at.String() != fmt.Sprintf("create configmaps n/%d", tc.n) {
					t.Errorf("%s\nkilled %v at %q", tc.reason, killed, at)
				}
				status := cmd.ProcessState.Sys().(syscall.WaitStatus)
				if got := status.Signaled() && status.Signal() == syscall.SIGKILL; got != tc.killed {
					t.Errorf("%s\nthe process ended with %v", tc.reason, cmd.ProcessState)
				}
				// A broken connection before death would show here as an error.
				if diff := cmp.Diff(tc.stdout, stdout.String()); diff != "" {
					t.Errorf("%s\nwhat the process saw: -want, +got:\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(tc.stored, s.stored()); diff != "" {
					t.Errorf("%s\nstored: -want, +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

// Writes side by side are where a kill could be off by some.
func TestKillAtAmongManyWrites(t *testing.T) {
	for _, when := range []When{Before, After} {
		t.Run(when.String(), func(t *testing.T) {
			s := newAPIServer(t)
			p := startProxy(t, s)
			// There is no process: its death is the moment all its requests end.
			ctx, die := context.WithCancel(t.Context())
			k := p.KillAt(5, when, die)
			c := client(t, p.Config())
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() { _, _ = c.Create(ctx, configMap(fmt.Sprint(i)), metav1.CreateOptions{}) })
			}
			wg.Wait()
			<-k.Dead()
			p.Close()
			want := 4
			if when == After {
				want = 5
			}
			if got := s.stored(); len(got) != want {
				t.Errorf("%d of 20 writes side by side reached the API server, want %d: those before the kill, whole, and none after it", len(got), want)
			}
		})
	}
}

func TestKillAmong(t *testing.T) {
	s := newAPIServer(t)
	p := startProxy(t, s, HTTP1())
	c := client(t, p.Config())
	killed := ""
	p.KillAmong(func(r Request) bool { return r.Name == "counts" }, 2, Before, func() { killed = fmt.Sprint(p.Writes()) })
	var failed []int
	for i, name := range []string{"a", "counts", "b", "counts", "c", "counts"} {
		if _, err := c.Create(t.Context(), configMap(name), metav1.CreateOptions{}); err != nil {
			failed = append(failed, i+1)
		}
	}
	if killed != "4" {
		t.Errorf("killed at write %q, want 4: the second that counts", killed)
	}
	if diff := cmp.Diff([]int{4, 5, 6}, failed); diff != "" {
		t.Errorf("writes that failed: -want, +got:\n%s", diff)
	}
}

func TestCloseWaitsForWrites(t *testing.T) {
	s := newAPIServer(t)
	p := startProxy(t, s)
	arrived, release := make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	s.creating = func() {
		close(arrived)
		<-release
	}
	s.mu.Unlock()
	ctx, die := context.WithCancel(t.Context())
	go func() { _, _ = client(t, p.Config()).Create(ctx, configMap("x"), metav1.CreateOptions{}) }()
	<-arrived
	die()

	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Close()
	}()
	select {
	case <-closed:
		t.Error("Close returned while a write was on its way to the API server")
	case <-time.After(200 * time.Millisecond):
	}
	close(release)
	<-closed
	if diff := cmp.Diff([]string{"x"}, s.stored()); diff != "" {
		t.Errorf("a write whose client died must still take place: -want, +got:\n%s", diff)
	}
}

func TestHold(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := newAPIServer(t)
	p := startProxy(t, s)
	c := client(t, p.Config())
	h := p.Hold(func(r Request) bool { return r.Name == "held" || r.Name == "dropped" })

	held := make(chan error, 1)
	go func() {
		_, err := c.Create(ctx, configMap("held"), metav1.CreateOptions{})
		held <- err
	}()
	<-h.Arrived()
	if _, err := c.Create(ctx, configMap("other"), metav1.CreateOptions{}); err != nil {
		t.Errorf("what does not match must pass: %v", err)
	}
	givesUp, giveUp := context.WithCancel(ctx)
	dropped := make(chan error, 1)
	go func() {
		_, err := c.Create(givesUp, configMap("dropped"), metav1.CreateOptions{})
		dropped <- err
	}()
	if err := p.Wait(ctx, func([]Entry) bool { return len(h.Requests()) == 2 }); err != nil {
		t.Fatal(err)
	}
	giveUp()
	if err := <-dropped; !errors.Is(err, context.Canceled) {
		t.Errorf("the client that gave up was told %v", err)
	}
	if err := p.Wait(ctx, func(log []Entry) bool { return log[2].Done }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"other"}, s.stored()); diff != "" {
		t.Errorf("stored while the others are held: -want, +got:\n%s", diff)
	}
	h.Release()
	if err := <-held; err != nil {
		t.Errorf("the released write: %v", err)
	}
	if diff := cmp.Diff([]string{"held", "other"}, s.stored()); diff != "" {
		t.Errorf("stored after release: -want, +got:\n%s", diff)
	}
}

func TestDeny(t *testing.T) {
	s := newAPIServer(t)
	p := startProxy(t, s)
	c := client(t, p.Config())
	refusal := apierrors.NewForbidden(configMaps.GroupResource(), "x", errors.New("denied by policy")).ErrStatus
	allow := p.Deny(func(r Request) bool { return r.Is("configmaps", "create") }, refusal)
	_, err := c.Create(t.Context(), configMap("x"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "denied by policy") {
		t.Errorf("create while denied: %v", err)
	}
	if _, err := c.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("what does not match must pass: %v", err)
	}
	allow()
	if _, err := c.Create(t.Context(), configMap("x"), metav1.CreateOptions{}); err != nil {
		t.Errorf("create when allowed again: %v", err)
	}
}

func TestClientCertificate(t *testing.T) {
	s := &apiServer{objects: map[string]json.RawMessage{}}
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	config := s.config()
	config.BearerToken = ""
	config.CertData, config.KeyData = keyPair(t)

	p, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if c := p.Config(); c.CertData != nil || c.KeyData != nil {
		t.Error("the client got the certificate's key, which the proxy needs no client for")
	}
	if _, err := client(t, p.Config()).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the proxy must show the certificate to the API server itself: %v", err)
	}
}

func keyPair(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
