package frame

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
)

// TestUnreachable: each way in which a connection fails has its own action.
func TestUnreachable(t *testing.T) {
	answer := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := closed.Addr().String()
	_ = closed.Close() // nobody listens there any more
	served := func(h http.Handler) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	foreign := httptest.NewTLSServer(answer(http.StatusOK))
	t.Cleanup(foreign.Close)
	for name, tc := range map[string]struct {
		reason, host string
		want         []string
	}{
		"Answers":   {"there is nothing to say", served(answer(http.StatusOK)), nil},
		"Forbidden": {"it is an answer, and the jobs name what is missing", served(answer(http.StatusForbidden)), nil},
		"Expired":   {"the token is not valid any more", served(answer(http.StatusUnauthorized)), []string{"Unauthorized. Next: Log in again", "kubectl config get-contexts '--context=my prod'"}},
		"Refused":   {"nobody listens", "http://" + refused, []string{"connection refused", ". Next: Check", "kubectl cluster-info '--context=my prod'"}},
		"Unknown":   {"the name is not known", "http://nowhere.invalid", []string{`no such host "nowhere.invalid". Next: `, "kubectl config view --minify '--context=my prod'"}},
		"Foreign":   {"another authority signed the certificate", foreign.URL, []string{"certificate", ". Next: Check", "authority in the kubeconfig: kubectl config view --minify"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Place{Context: "my prod"}.unreachable(t.Context(), &rest.Config{Host: tc.host})
			if len(tc.want) == 0 && got != "" {
				t.Errorf("%s: %s", tc.reason, got)
			}
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s: no %q in %q", tc.reason, want, got)
				}
			}
		})
	}
	t.Run("Plugin", func(t *testing.T) {
		// On f3299ef the action was to check that the cluster runs.
		for reason, command := range map[string]string{"it fails": "false", "it is not installed": "no-such-plugin"} {
			got := Place{}.unreachable(t.Context(), &rest.Config{Host: "https://127.0.0.1:1", ExecProvider: &api.ExecConfig{
				Command: command, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: api.NeverExecInteractiveMode,
			}})
			if !strings.Contains(got, "credential plugin") || !strings.Contains(got, command) || strings.Contains(got, "cluster-info") {
				t.Errorf("%s: %q", reason, got)
			}
		}
	})
	t.Run("Frozen", func(t *testing.T) {
		release := make(chan struct{})
		host := served(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		defer close(release)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errNoAnswer)
		defer cancel()
		if got := (Place{}).unreachable(ctx, &rest.Config{Host: host}); !strings.Contains(got, "no answer within 10s") {
			t.Errorf("the server takes the request, and answers nothing: %q", got)
		}
	})
}
