package k8sutil

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// TestWhoAmI: the first version that is served answers.
func TestWhoAmI(t *testing.T) {
	for _, tc := range []struct{ reason, served, want string }{
		{"current servers", "v1", "ada"},
		{"Kubernetes 1.26", "v1alpha1", "ada"},
		{"a server that serves none", "v9", ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Method != http.MethodPost || r.URL.Path != "/apis/authentication.k8s.io/"+tc.served+"/selfsubjectreviews" || len(body) == 0 {
				http.Error(w, "{}", http.StatusNotFound)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"kind":"SelfSubjectReview","status":{"userInfo":{"username":"ada"}}}`)
		}))
		if got := WhoAmI(t.Context(), &rest.Config{Host: server.URL}); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
		server.Close()
	}
}
