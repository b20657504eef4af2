package standin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// fakeHelm knows releases by their names, with the code of their status. It upgrades none.
type fakeHelm struct {
	mu       sync.Mutex
	releases map[string]uint64
	asked    []string
	// told is read before it tells of a release that has failed.
	told chan struct{}
}

func (h *fakeHelm) Run(_ context.Context, args ...string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	command, app := args[0], args[1]
	if args[1] == "--install" {
		command, app = "install", args[2]
	}
	if command != "status" {
		h.asked = append(h.asked, command+" "+app)
	}
	switch code, exists := h.releases[app]; {
	case command == "install":
		h.releases[app] = releaseStatus["DEPLOYED"]
	case !exists:
		return "", fmt.Errorf("release: %q not found", app)
	case command == "upgrade":
		h.releases[app] = releaseStatus["FAILED"]
		return "", errors.New("no room")
	case code == releaseStatus["FAILED"]:
		h.mu.Unlock()
		<-h.told
		h.mu.Lock()
		return `{"info":{"status":{"code":4},"Description":"Upgrade \"` + app + `\" failed: no room"}}`, nil
	}
	return `{"info":{"status":{"code":1},"Description":"Install complete"}}`, nil
}

// TestApplicationOperator holds what becomes of the release of an Application when the
// operator starts, and when an Application says why its upgrade has failed.
func TestApplicationOperator(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		frozen := Application("frozen", true)
		if err := Load(f.ctx, f.cp.Config(), Application("missing", false), Application("shop", false), frozen); err != nil {
			t.Fatal(err)
		}
		applications := f.client.Resource(Applications)
		list, err := applications.List(f.ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		events, err := applications.Watch(f.ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		next := func(app string) string {
			for e := range events.ResultChan() {
				if u, ok := e.Object.(*unstructured.Unstructured); ok && u.GetName() == app {
					return text(u, "status", "installationStatus", "status") + ": " + text(u, "status", "installationStatus", "description")
				}
			}
			t.Fatal("nothing is written any more")
			return ""
		}
		helm := &fakeHelm{releases: map[string]uint64{"shop": releaseStatus["DEPLOYED"]}, told: make(chan struct{})}
		operator := StartApplicationOperator(f.ctx, ApplicationOperatorOptions{Helm: helm, Client: f.client, Chart: "chart", Log: f.log, SyncPeriod: 1})
		if got := next("shop"); got != "FAILED: " {
			t.Errorf("a failed upgrade is told as %q", got)
		}
		close(helm.told)
		if got := next("shop"); got != `FAILED: Upgrade "shop" failed: no room` {
			t.Errorf("then as %q", got)
		}
		operator.Terminate()
		helm.mu.Lock()
		defer helm.mu.Unlock()
		if diff := cmp.Diff([]string{"upgrade shop", "install missing"}, helm.asked); diff != "" {
			t.Errorf("asked of Helm (-want +got):\n%s", diff)
		}
	})
}
