package k8sutil

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// TestWhoAmI: the first version that is served answers. An older server names the account when it
// refuses a request.
func TestWhoAmI(t *testing.T) {
	for _, tc := range []struct{ reason, served, refusal, want string }{
		{reason: "current servers", served: "v1", want: "ada"},
		{reason: "Kubernetes 1.26", served: "v1alpha1", want: "ada"},
		{reason: "Kubernetes 1.16", refusal: `forbidden: User \"system:serviceaccount:shop:reader\" cannot get path \"/x\"`, want: "system:serviceaccount:shop:reader"},
		{reason: "a name with quotes", refusal: `forbidden: User \"a\\\"b\" cannot get path \"/x\"`, want: `a"b`},
		{reason: "another refusal", refusal: `forbidden: not today, User`},
		{reason: "an account that may read everything, on an old server"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path == unusedPath && tc.refusal != "" {
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"`+tc.refusal+`"}`)
				return
			}
			if r.Method != http.MethodPost || r.URL.Path != "/apis/authentication.k8s.io/"+tc.served+"/selfsubjectreviews" || len(body) == 0 {
				http.Error(w, "{}", http.StatusNotFound)
				return
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"kind":"SelfSubjectReview","status":{"userInfo":{"username":"ada"}}}`)
		}))
		if got := WhoAmI(t.Context(), &rest.Config{Host: server.URL}); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
		server.Close()
	}
}
