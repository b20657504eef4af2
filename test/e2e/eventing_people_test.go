//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// person is somebody with a kubeconfig, and with the plugin on the PATH.
type person struct{ kubeconfig, path, home string }

// kubectl is kubectl for a person. It ends with the test.
func (p *person) kubectl(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "kubectl", args...)
	cmd.Env = []string{"KUBECONFIG=" + p.kubeconfig, "HOME=" + p.home, "PATH=" + p.path}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// want runs a command to its end, which is to print texts.
func (p *person) want(t *testing.T, args []string, texts ...string) {
	t.Helper()
	out, err := p.kubectl(t, args...).CombinedOutput()
	for _, text := range texts {
		if !strings.Contains(strings.Join(strings.Fields(string(out)), " "), text) {
			t.Errorf("kubectl %s does not print %q:\n%s", strings.Join(args, " "), text, out)
		}
	}
	if err != nil {
		t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func init() { people = (*eventing).people }

// people look at eventing through the real API server and kubelet: an administrator, and somebody
// who may see the namespace shop, and reach eventing. The Subscription shop/orders is served; sent
// are ids of events that its sink has got.
func (e *eventing) people(t *testing.T, sent <-chan string) {
	t.Helper()
	began := time.Now()
	path := process.OnPath(t, "./cmd/kubectl-eventing")
	admin := &person{e.Kubeconfig, path, t.TempDir()}
	jane := &person{filepath.Join(t.TempDir(), "jane.kubeconfig"), path, t.TempDir()}
	e.do(t, "", "-n", "shop", "create", "serviceaccount", "jane")
	e.do(t, "", "-n", "shop", "create", "rolebinding", "jane", "--clusterrole=view", "--serviceaccount=shop:jane")
	e.do(t, "", "-n", eventingNamespace, "create", "rolebinding", "eventing-kubectl", "--role=eventing-kubectl", "--serviceaccount=shop:jane")
	token, err := admin.kubectl(t, "-n", "shop", "create", "token", "jane").Output()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := clientcmd.LoadFromFile(e.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name := range raw.AuthInfos {
		raw.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(string(token))}
	}
	if err := clientcmd.WriteToFile(*raw, jane.kubeconfig); err != nil {
		t.Fatal(err)
	}

	admin.want(t, []string{"eventing", "status"}, "Ready, backend NATS", "operator 1/1", "1 Subscription: no problem is known.")
	jane.want(t, []string{"eventing", "subscriptions", "-n", "shop"}, "shop orders yes")
	for i, p := range []*person{admin, jane} {
		event := []string{"-n", "shop", "--type", "order.created.v1", "--source", "commerce", "--id"}
		id := fmt.Sprint(byPeople, "sent-", i)
		p.want(t, append([]string{"eventing", "send"}, append(event, id)...), "204", "shop/orders")
		traced := fmt.Sprint(byPeople, "traced-", i)
		p.want(t, append([]string{"eventing", "trace"}, append(event, traced)...), "shop/orders", "200")
		for _, want := range []string{id, traced} {
			select {
			case got := <-sent:
				if got != want {
					t.Errorf("the sink got %s, want %s", got, want)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("the sink has not got %s", want)
			}
		}
	}
	jane.page(t)
	t.Logf("people looked at eventing for %.1f s", time.Since(began).Seconds())
}

var addressed = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/[A-Za-z0-9_-]{43}/`)

// page opens the page of docs/eventing/page.md, as a browser does.
func (p *person) page(t *testing.T) {
	t.Helper()
	screen, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	cmd := p.kubectl(t, "eventing", "page", "--no-browser")
	cmd.Stdout, cmd.Stderr = screen, screen
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("after Ctrl-C: %v", err)
		}
	}()
	address := ""
	poll.Until(t, 20*time.Second, "the address is printed", func(context.Context) error {
		text, err := os.ReadFile(screen.Name())
		if address = addressed.FindString(string(text)); err == nil && address == "" {
			err = fmt.Errorf("it prints: %s", text)
		}
		return err
	})
	poll.Until(t, 20*time.Second, "the page has the Subscription", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && (answer.StatusCode != http.StatusOK || !strings.Contains(string(text), "shop/orders") || strings.Contains(string(text), "The operator does not answer")) {
			err = fmt.Errorf("%s: %s", answer.Status, text)
		}
		return err
	})
}
