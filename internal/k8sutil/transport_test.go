package k8sutil

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// TestTellSilence: a person hears of a frozen API server once, and of its next answer.
func TestTellSilence(t *testing.T) {
	type request struct{ from, until time.Duration }
	const s = time.Second
	for _, tc := range []struct {
		reason   string
		requests []request
		want     []string
	}{
		{"quick answers", []request{{0, s}, {s, 5 * s}}, nil},
		{"a frozen server, with several requests", []request{{0, 12 * s}, {s, 13 * s}}, []string{"5s silent", "12s answered"}},
		{"frozen twice", []request{{0, 8 * s}, {20 * s, 28 * s}}, []string{"5s silent", "8s answered", "25s silent", "28s answered"}},
		{"one slow request, while others are answered", []request{{0, 9 * s}, {s, 2 * s}, {3 * s, 5 * s}}, nil},
		{"frozen while a request waits already", []request{{0, 20 * s}, {s, 2 * s}}, []string{"7s silent", "20s answered"}},
		{"a connection that breaks is no answer", []request{{0, -7 * s}, {8 * s, 9 * s}}, []string{"5s silent", "9s answered"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var got []string
			say := func(what string) func() {
				return func() { got = append(got, fmt.Sprintf("%v %s", time.Since(began), what)) }
			}
			transport := TellSilence(5*s, say("silent"), say("answered"))(RoundTripper(func(req *http.Request) (*http.Response, error) {
				until, err := time.ParseDuration(req.URL.Host)
				if err != nil {
					t.Error(err)
				}
				time.Sleep(until.Abs() - time.Since(began))
				if until < 0 {
					return nil, errors.New("the connection broke")
				}
				return &http.Response{Body: http.NoBody}, nil
			}))
			for _, r := range tc.requests {
				go func() {
					time.Sleep(r.from)
					req, err := http.NewRequest(http.MethodGet, "http://x/", http.NoBody)
					if err != nil {
						t.Error(err)
						return
					}
					req.URL.Host = r.until.String()
					if resp, err := transport.RoundTrip(req); err == nil {
						_ = resp.Body.Close()
					}
				}()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestWritesOnce: a write that is to come later is an error for the caller, with the time. On
// f3299ef client-go repeated it by itself.
func TestWritesOnce(t *testing.T) {
	status := func(s *apierrors.StatusError) string {
		s.ErrStatus.Kind, s.ErrStatus.APIVersion = "Status", "v1"
		raw, err := json.Marshal(s.ErrStatus)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	for name, tc := range map[string]struct {
		reason, method, later string
		code                  int
		body                  string
		// sent is how often the server got it, delay what it asks for, transient whether it may be
		// repeated.
		sent, delay int
		transient   bool
	}{
		"Busy":    {"the filter of requests answers in plain text", http.MethodDelete, "6", 429, "Too many requests, please try again later.", 1, 6, true},
		"Status":  {"others with a Status", http.MethodDelete, "6", 429, status(apierrors.NewTooManyRequests("later", 0)), 1, 6, true},
		"Down":    {"a proxy before the server", http.MethodPatch, "2", 503, "no healthy upstream", 1, 2, true},
		"NoDelay": {"without the header client-go repeats nothing", http.MethodDelete, "", 429, status(apierrors.NewTooManyRequests("later", 0)), 1, 0, true},
		"Refused": {"what is decided on the merits stays as it is", http.MethodDelete, "6", 409, status(apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", errors.New("no"))), 1, 0, false},
		"Read":    {"a read is repeated as before", http.MethodGet, "0", 429, "Too many requests", 11, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			sent := 0
			cfg := &rest.Config{Host: "http://api.invalid", QPS: -1, Transport: RoundTripper(func(req *http.Request) (*http.Response, error) {
				sent++
				resp := &http.Response{StatusCode: tc.code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(tc.body)), Request: req}
				if tc.later != "" {
					resp.Header.Set("Retry-After", tc.later)
				}
				return resp, nil
			})}
			cfg.Wrap(WritesOnce)
			client, err := dynamic.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			things := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "things"}).Namespace("shop")
			switch tc.method {
			case http.MethodDelete:
				err = things.Delete(t.Context(), "a", metav1.DeleteOptions{})
			case http.MethodPatch:
				_, err = things.Patch(t.Context(), "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			default:
				_, err = things.Get(t.Context(), "a", metav1.GetOptions{})
			}
			delay, _ := apierrors.SuggestsClientDelay(err)
			if sent != tc.sent || err == nil || delay != tc.delay || IsTransient(err) != tc.transient {
				t.Errorf("%s: sent %d times, %v, to be repeated after %d s: %t", tc.reason, sent, err, delay, IsTransient(err))
			}
		})
	}
}
