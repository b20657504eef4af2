package migrationtest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

const (
	journal = "/api/v1/namespaces/state/secrets"
	object  = "/apis/apps/v1/namespaces/shop/deployments/orders"
)

func TestWire(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		wire   *wire
		want   []string
		// arrived are the requests that the server got.
		arrived []string
		ended   bool
	}{
		"Undisturbed": {
			reason: "All requests arrive.",
			wire:   &wire{},
			want:   []string{"200", "200", "200", "200"}, arrived: []string{"POST " + journal, "PATCH " + object, "GET " + object, "DELETE " + object},
		},
		"KilledBefore": {
			reason: "The write does not arrive, and nothing does after it.",
			wire:   &wire{killAt: 2}, ended: true,
			want: []string{"200", "killed", "killed", "killed"}, arrived: []string{"POST " + journal},
		},
		"KilledAfter": {
			reason: "The write arrives, its answer does not.",
			wire:   &wire{killAt: 2, after: true}, ended: true,
			want: []string{"200", "killed", "killed", "killed"}, arrived: []string{"POST " + journal, "PATCH " + object},
		},
		"Refused": {
			reason: "The first write of the job is the second of the run; the others arrive.",
			wire:   &wire{refuseAt: 1},
			want:   []string{"200", "422", "200", "200"}, arrived: []string{"POST " + journal, "GET " + object, "DELETE " + object},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var arrived []string
			server := roundTripper(func(req *http.Request) (*http.Response, error) {
				arrived = append(arrived, req.Method+" "+req.URL.Path)
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
			})
			ctx, end := context.WithCancelCause(t.Context())
			w := tc.wire
			w.stateNamespace, w.end = "state", end
			transport := w.wrap(server)
			var got []string
			for _, request := range []struct{ method, path string }{
				{http.MethodPost, journal}, {http.MethodPatch, object}, {http.MethodGet, object}, {http.MethodDelete, object},
			} {
				resp, err := transport.RoundTrip(httptest.NewRequestWithContext(ctx, request.method, request.path, nil))
				switch {
				case errors.Is(err, errKilled):
					got = append(got, "killed")
					if k8sutil.IsTransient(err) {
						t.Errorf("%s: a killed run would try again", tc.reason)
					}
				case err != nil:
					t.Fatal(err)
				default:
					got = append(got, map[int]string{200: "200", 422: "422"}[resp.StatusCode])
					_ = resp.Body.Close()
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: answers (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.arrived, arrived); diff != "" {
				t.Errorf("%s: what arrived (-want +got):\n%s", tc.reason, diff)
			}
			if (ctx.Err() != nil) != tc.ended {
				t.Errorf("%s: the context of the run: %v", tc.reason, context.Cause(ctx))
			}
			w.close()
			if resp, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, object, nil)); !errors.Is(err, errKilled) {
				if err == nil {
					_ = resp.Body.Close()
				}
				t.Errorf("%s: something arrives after the end: %v", tc.reason, err)
			}
		})
	}
}

func TestFaultsAreOfAllKinds(t *testing.T) {
	w := &wire{faults: rand.New(rand.NewPCG(1, 0)), stateNamespace: "state"}
	transport := w.wrap(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	}))
	got := map[int]bool{}
	for range 200 {
		resp, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodPatch, object, nil))
		code := 0 // no answer
		if err == nil {
			code = resp.StatusCode
			_ = resp.Body.Close()
		} else if !k8sutil.IsTransient(err) {
			t.Errorf("no run would try again after: %v", err)
		}
		got[code] = true
	}
	if diff := cmp.Diff(map[int]bool{0: true, 200: true, 429: true, 500: true}, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

func TestResourceOf(t *testing.T) {
	for _, tc := range []struct {
		reason, path string
		want         schema.GroupResource
	}{
		{"the core group", "/api/v1/namespaces/shop/configmaps/a", schema.GroupResource{Resource: "configmaps"}},
		{"another group", object, schema.GroupResource{Group: "apps", Resource: "deployments"}},
		{"a subresource is of its object", object + "/scale", schema.GroupResource{Group: "apps", Resource: "deployments"}},
		{"no namespace", "/apis/networking.k8s.io/v1/ingressclasses/nginx", schema.GroupResource{Group: "networking.k8s.io", Resource: "ingressclasses"}},
		{"a namespace itself", "/api/v1/namespaces/shop", schema.GroupResource{Resource: "namespaces"}},
		{"no object of the API", "/healthz", schema.GroupResource{}},
	} {
		if diff := cmp.Diff(tc.want, resourceOf(tc.path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
