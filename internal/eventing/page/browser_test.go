//go:build slow

package page

import (
	"context"
	"errors"
	"fmt"
	"image/png"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/test/browser"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// live is a page in a browser, of a cluster that a test changes.
func live(t *testing.T, state *State) (*browser.Tab, *atomic.Pointer[State], *httptest.Server) {
	t.Helper()
	var now atomic.Pointer[State]
	now.Store(state)
	read := func(context.Context) (*State, error) {
		s := *now.Load()
		s.At = time.Now()
		return &s, nil
	}
	server := httptest.NewServer(served("jane", read, &reviews{rights: []string{"jane everything"}}))
	t.Cleanup(server.Close)
	return browser.Visit(t, server.URL+"/secret/"), &now, server
}

func TestShots(t *testing.T) {
	dir := os.Getenv("SHOTS")
	if dir == "" {
		t.Skip()
	}
	for _, n := range []int{20, 1000} {
		tb, _, _ := live(t, sample(n))
		for _, s := range []struct {
			name       string
			wide, high int
			dark       bool
			touch      bool
		}{{"desktop", 1360, 1500, false, false}, {"dark", 1360, 1500, true, false}, {"phone", 390, 1600, false, true}} {
			tb.Screen(s.wide, s.high, s.dark, s.touch)
			f, err := os.Create(fmt.Sprintf("%s/%s-%d.png", dir, s.name, n))
			if err != nil {
				t.Fatal(err)
			}
			if err := png.Encode(f, tb.Picture()); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			if s.name == "phone" {
				continue
			}
			tb.Value("document.querySelector('#flow').scrollIntoView()")
			f, _ = os.Create(fmt.Sprintf("%s/flow-%s-%d.png", dir, s.name, n))
			_ = png.Encode(f, tb.Picture())
			_ = f.Close()
			tb.Value("scrollTo(0,0)")
		}
		t.Log(tb.Complaints(), tb.Value("document.querySelector('#now').textContent"))
	}
}

var _ = errors.New
var _ = strconv.Itoa
var _ = strings.Cut
var _ inspect.Subscription
var _ = poll.Until
