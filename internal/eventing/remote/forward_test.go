package remote

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// kubelet plays an API server that forwards ports to an address, by SPDY alone.
func kubelet(t *testing.T, target string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if want := "/api/v1/namespaces/kyma-system/pods/eventing-controller-0/portforward"; q.URL.Path != want {
			t.Errorf("asked %s, want %s", q.URL.Path, want)
		}
		if q.Header.Get("Upgrade") != "SPDY/3.1" {
			http.Error(w, "no WebSockets here", http.StatusBadRequest)
			return
		}
		if _, err := httpstream.Handshake(q, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			t.Errorf("handshake: %v", err)
			return
		}
		streams := make(chan httpstream.Stream, 10)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, q, func(s httpstream.Stream, _ <-chan struct{}) error {
			streams <- s
			return nil
		})
		if conn == nil {
			return
		}
		defer func() { _ = conn.Close() }()
		for {
			select {
			case <-conn.CloseChan():
				return
			case s := <-streams:
				if s.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
					_ = s.Close()
					continue
				}
				if port := s.Headers().Get(corev1.PortHeader); port != fmt.Sprint(APIPort) {
					t.Errorf("asked for port %s", port)
				}
				go pipe(s, target)
			}
		}
	}))
	t.Cleanup(s.CloseClientConnections)
	return s
}

func pipe(s httpstream.Stream, target string) {
	to, err := net.Dial("tcp", target)
	if err != nil {
		_ = s.Reset()
		return
	}
	go func() { _, _ = io.Copy(to, s) }()
	_, _ = io.Copy(s, to)
	_ = s.Close()
	_ = to.Close()
}

// TestForward: what is asked here is answered by the pod, also where WebSockets do not get through.
func TestForward(t *testing.T) {
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, "you asked "+q.URL.Path) }))
	defer pod.Close()
	server := kubelet(t, strings.TrimPrefix(pod.URL, "http://"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address, err := Forward(ctx, &rest.Config{Host: server.URL}, "kyma-system", "eventing-controller-0", APIPort)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Get("http://" + address + "/x")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || string(raw) != "you asked /x" {
		t.Errorf("%q, %v", raw, err)
	}
}

// TestForwardIsForbidden: the permission is named.
func TestForwardIsForbidden(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"pods \"x\" is forbidden: User \"jane\" cannot create resource \"pods/portforward\""}`)
	}))
	defer server.Close()
	_, err := Forward(t.Context(), &rest.Config{Host: server.URL}, "kyma-system", "x", APIPort)
	for _, want := range []string{`User "jane" cannot create resource "pods/portforward"`, "kubectl auth can-i create pods --subresource=portforward --namespace=kyma-system"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}
