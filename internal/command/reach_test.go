package command

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/command/statusline"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
)

// TestFrozenServer: a person hears of a server that takes the request, and answers nothing, after 5
// s, and waits no longer than 10 s.
func TestFrozenServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		told := make(chan string, 10)
		c := &Connection{Context: "prod", place: frame.Place{Context: "prod"}, Status: statusline.New(writer(func(text string) { told <- fmt.Sprint(time.Since(began), " ", text) }), false)}
		c.Config = &rest.Config{Host: "http://frozen", Transport: frozen{}}
		err := c.Reach(t.Context())
		if want := "cannot reach the API server http://frozen: no answer within 10s. Next: Check the VPN and the proxy, then: kubectl cluster-info --context=prod"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if got := time.Since(began); got != frame.ReachWithin {
			t.Errorf("it waited %s", got)
		}
		if got := <-told; got != "5s the API server has not answered for 5s; still waiting\n" || len(told) > 0 {
			t.Errorf("told %q, and %d lines more", got, len(told))
		}
	})
}

type frozen struct{}

func (frozen) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

type writer func(string)

func (w writer) Write(b []byte) (int, error) { w(string(b)); return len(b), nil }
