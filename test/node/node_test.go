package node

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestMountsText(t *testing.T) {
	mounts := Mounts{"/data": "/tmp/1/data", "/etc/nats": "/tmp/1/etc", "/etc/nats/tls": "/tmp/1/tls"}
	for _, tc := range []struct{ reason, text, want string }{
		{"an argument", "/etc/nats/config/nats.conf", "/tmp/1/etc/config/nats.conf"},
		{"a flag", "-sl=ldm=/etc/nats/nats.pid", "-sl=ldm=/tmp/1/etc/nats.pid"},
		{"the mount below another one", "ca: /etc/nats/tls/ca.crt\n", "ca: /tmp/1/tls/ca.crt\n"},
		{"the directory itself, twice", "/data:/data", "/tmp/1/data:/tmp/1/data"},
		{"a part of another path", "/var/data /database /data-1", "/var/data /database /data-1"},
		{"no path", "data", "data"},
	} {
		if got := mounts.Text(tc.text); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

func TestSelected(t *testing.T) {
	data := map[string][]byte{"a": []byte("1"), "b": []byte("2")}
	files, err := selected("ConfigMap shop/x", data, []corev1.KeyToPath{{Key: "a", Path: "dir/a.conf"}})
	if diff := cmp.Diff(map[string][]byte{"dir/a.conf": []byte("1")}, files); diff != "" || err != nil {
		t.Errorf("one key: %v (-want +got):\n%s", err, diff)
	}
	if _, err := selected("ConfigMap shop/x", data, []corev1.KeyToPath{{Key: "c", Path: "c"}}); err == nil || !strings.Contains(err.Error(), "ConfigMap shop/x") {
		t.Errorf("a key that is not there: %v", err)
	}
}

type listening string

func (l listening) At(port int32) string {
	if port == 8222 {
		return string(l)
	}
	return ""
}

// TestProbes: what counts is a change after as many results as the probe says.
func TestProbes(t *testing.T) {
	// What the server answers, one after the other; the last one for ever.
	for _, tc := range []struct {
		reason  string
		answers string
		port    intstr.IntOrString
		want    []bool
	}{
		{"ready at once, then not, then again", "2 5 5 2", intstr.FromString("monitor"), []bool{true, false, true}},
		{"one failure does not count", "2 5 2 5 5", intstr.FromInt32(8222), []bool{true, false}},
		{"a redirect is a success", "3 4 4", intstr.FromInt32(8222), []bool{true, false}},
		{"nobody listens", "2", intstr.FromInt32(1), []bool{false}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			answers := strings.Fields(tc.answers)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				code := map[string]int{"2": 200, "3": 304, "4": 404, "5": 503}[answers[0]]
				if len(answers) > 1 {
					answers = answers[1:]
				}
				w.WriteHeader(code)
			}))
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			container := &corev1.Container{Ports: []corev1.ContainerPort{{Name: "client", ContainerPort: 4222}, {Name: "monitor", ContainerPort: 8222}}}
			probe := &corev1.Probe{FailureThreshold: 2, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: tc.port}}}
			var got []bool
			probes(ctx, container, probe, listening(strings.TrimPrefix(server.URL, "http://")), func(ok bool) bool {
				got = append(got, ok)
				return len(got) < len(tc.want)
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if len(answers) > 1 {
				t.Errorf("it counted too early: the answers %q were not asked for", answers)
			}
		})
	}
}
