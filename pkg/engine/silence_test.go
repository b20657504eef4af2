package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
)

// frozen is an API server that takes requests, and answers nothing.
type frozen struct{}

func (frozen) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// TestAFrozenServerIsTold: the log of every engine says it, after 5 s.
func TestAFrozenServerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		core, logs := observer.New(zap.WarnLevel)
		e, err := New(&rest.Config{Host: "http://frozen", Transport: frozen{}}, Options{Names: enginetest.Names, Log: zap.New(core)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		if _, _, err := e.Cluster().Served(ctx, schema.GroupKind{Group: "example.com", Kind: "Thing"}); err == nil {
			t.Error("it answers")
		}
		var told []string
		for _, line := range logs.All() {
			told = append(told, line.Message+", logged after "+line.Time.Sub(began).String())
		}
		if diff := cmp.Diff([]string{"the API server has not answered for 5s; the job waits for it, logged after 5s"}, told); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestARepeatedCallIsTold: after 3 s of retries the log says once what fails, and names a webhook
// that does not answer.
func TestARepeatedCallIsTold(t *testing.T) {
	webhook := apierrors.NewInternalError(errors.New(`failed calling webhook "policy.example.com": Post "https://policy.gate.svc:443/": dial tcp: connection refused`))
	for _, tc := range []struct {
		reason string
		err    error
		want   string
	}{
		{"a webhook", webhook, "an admission webhook does not answer the API server; retrying (policy.example.com)"},
		{"the server itself", apierrors.NewTooManyRequestsError("later"), "the API server is not responding reliably; retrying (<nil>)"},
	} {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			e, err := New(&rest.Config{Host: "http://busy", Transport: frozen{}}, Options{Names: enginetest.Names, Log: zap.New(core)})
			if err != nil {
				t.Fatal(err)
			}
			notify := e.notify()
			for range 10 {
				notify(tc.err)
				time.Sleep(time.Second)
			}
			var told []string
			for _, line := range logs.All() {
				told = append(told, fmt.Sprintf("%s (%v)", line.Message, line.ContextMap()["webhook"]))
			}
			if diff := cmp.Diff([]string{tc.want}, told); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
