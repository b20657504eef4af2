package publisher

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

// toBroker is a publisher whose Broker is a server of the test. The real Broker is in the tests
// with Knative.
func toBroker(t *testing.T, maxInFlight int, broker http.HandlerFunc) (*Publisher, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(broker)
	t.Cleanup(server.Close)
	p := NewMesh(maxInFlight, zap.NewNop())
	t.Cleanup(p.Close)
	p.accept(server.URL+"/kyma-system/eventing", operatorv1alpha1.EventMesh)
	return p, server
}

func (p *Publisher) accept(url string, backends ...operatorv1alpha1.BackendType) {
	b := &backend.Backends{Epoch: "e1", Accept: backends}
	if url != "" {
		b.Mesh = &backend.MeshAddress{Broker: "eventing", URL: url}
	}
	p.backends.Store(b)
	p.transport.use(b)
}

func send(p *Publisher, eventType string) *legacy.Problem {
	return p.Send(context.Background(), &cloudevent.Event{ID: "1", Source: "shop", Type: eventType, Data: []byte("x")}, http.Header{}, "request-1")
}

func TestMeshAnswers(t *testing.T) {
	type told struct {
		Status     int
		RetryAfter time.Duration
		MoreInfo   string
	}
	status := 0
	asked := 0
	p, server := toBroker(t, 8, func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Method != http.MethodPost || r.URL.Path != "/kyma-system/eventing" || r.Header.Get("Ce-Type") != "a.b" || r.ContentLength != 1 {
			t.Errorf("%s %s, header %v", r.Method, r.URL, r.Header)
		}
		w.WriteHeader(status)
	})
	const again = legacy.RetryAfter
	for code, want := range map[int]told{
		200: {}, 202: {}, 204: {},
		400: {400, 0, ""},
		401: {503, again, legacy.NotTaken},
		404: {503, again, legacy.NotTaken},
		413: {413, 0, "http: request body too large"},
		307: {503, again, legacy.NotTaken},
		429: {503, again, legacy.NotTaken},
		500: {503, again, legacy.MayBeTaken},
		502: {503, again, legacy.MayBeTaken},
		503: {503, again, legacy.MayBeTaken},
	} {
		status = code
		var got told
		if problem := send(p, "a.b"); problem != nil {
			got = told{problem.Status, problem.RetryAfter, problem.MoreInfo}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the Broker answers %d (-want +got):\n%s", code, diff)
		}
	}
	before := asked
	p.accept(server.URL+"/kyma-system/eventing", operatorv1alpha1.NATS)
	if problem := send(p, "a.b"); problem == nil || problem.Status != 503 || problem.RetryAfter == 0 || problem.Cause != "not_accepted" {
		t.Errorf("the mesh is not accepted: %+v", problem)
	}
	p.accept("", operatorv1alpha1.EventMesh)
	if problem := send(p, "a.b"); problem == nil || problem.Status != 503 || problem.Cause != "not_connected" {
		t.Errorf("the Broker has no address: %+v", problem)
	}
	if asked != before {
		t.Errorf("the Broker was asked %d times by what was refused before", asked-before)
	}
	server.Close()
	p.accept(server.URL+"/kyma-system/eventing", operatorv1alpha1.EventMesh)
	if problem := send(p, "a.b"); problem == nil || problem.Status != 503 || problem.MoreInfo != legacy.NotTaken {
		t.Errorf("nobody listens: %+v", problem)
	}
}

// TestMeshSharesSlots: events of a type whose sink is slow leave room for other types.
func TestMeshSharesSlots(t *testing.T) {
	release := make(chan struct{})
	begun := make(chan struct{}, 8)
	p, _ := toBroker(t, 8, func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Ce-Type") == "slow.v1" {
			begun <- struct{}{}
			<-release
		}
	})
	done := make(chan *legacy.Problem, 2)
	for range 2 { // a quarter of 8
		go func() { done <- send(p, "slow.v1") }()
		<-begun
	}
	if problem := send(p, "slow.v1"); problem == nil || problem.Status != 503 || problem.RetryAfter == 0 || problem.Cause != "type_overloaded" {
		t.Errorf("a third event of the type: %+v", problem)
	}
	if problem := send(p, "quick.v1"); problem != nil {
		t.Errorf("an event of another type: %+v", problem)
	}
	close(release)
	for range 2 {
		if problem := <-done; problem != nil {
			t.Errorf("%+v", problem)
		}
	}
	if problem := send(p, "slow.v1"); problem != nil {
		t.Errorf("the slots are free again: %+v", problem)
	}
}

// TestMeshReady: one answer is enough, for ever.
func TestMeshReady(t *testing.T) {
	p, server := toBroker(t, 8, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	url := server.URL
	p.accept("", operatorv1alpha1.EventMesh)
	if p.Ready(t.Context()) == nil {
		t.Error("ready without an address")
	}
	p.accept("http://127.0.0.1:1/", operatorv1alpha1.EventMesh)
	if p.Ready(t.Context()) == nil {
		t.Error("ready without an answer")
	}
	p.accept(url, operatorv1alpha1.EventMesh)
	if p.Ready(t.Context()) == nil {
		t.Error("ready without knowing the Applications")
	}
	p.applications.types.Store(&map[string]string{})
	if err := p.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	server.Close()
	if err := p.Ready(t.Context()); err != nil {
		t.Errorf("the Broker is gone after it has answered once: %v", err)
	}
}
