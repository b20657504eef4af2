package k8sutil

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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
			transport := TellSilence(5*s, say("silent"), say("answered"))(roundTripper(func(req *http.Request) (*http.Response, error) {
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
